"""A report of a model as one HTML file: what it is, how good, where it is weak, what is doubtful in the truth.

Reading order: `findings` (everything is found once), `sections` (from there to HTML), `document` (the file); `plots`
draws, `markup` keeps text text.
"""
