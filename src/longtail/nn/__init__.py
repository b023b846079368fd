"""Learned layers and how they are trained, in torch. Nothing here knows a paper, a stage or a file.

Shape suffixes, used on tensors all over this room:

    B documents of a batch       D width of a document vector     L labels (or clusters)
    C candidates of a document   V tokens of the vocabulary       T positions of a token sequence
    P (document, row) pairs of a batch, flat                      U different rows (labels, tokens) that a batch touches
"""
