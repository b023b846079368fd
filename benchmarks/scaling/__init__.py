"""How prediction grows with the number of labels: planted models of 10^4 to 10^7 of them; see `__main__`."""
