// Read before the first paint, so that a page that was switched to dark does not flash white.
try {
  const theme = localStorage.getItem("longtail.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing: the theme of the system it is.
}
