"""Trains the MTP layer of a frozen checkpoint on the checkpoint's own distribution, and writes the result.

    support.py   what can be distilled here, and what must be installed     data.py   text and prompts as rows of tokens
    model.py     the frozen model and its MTP layer, out of a checkpoint    train.py  the loss, the loop, its state
    run.py       from a folder to a folder                                  write.py  the new folder
    chart.py     loss and acceptance as SVG

Only `support`, `data` and `chart` can be imported without PyTorch.
"""
