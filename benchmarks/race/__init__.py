"""Our recipes and the systems that a user would pick instead, trained on the same text and measured in one run; see
`__main__`.
"""
