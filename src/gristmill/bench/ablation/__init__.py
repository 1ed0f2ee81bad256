"""`gristmill bench ablation`: what each optimization of BPE training is worth.

rows.py             the rows of the table: the programs, the native core, the GPU
python_row.py       runs a program of `gristmill.reference.ablation`, in a fresh process
core_row.py         runs the native core, in a fresh process
gpu_row.py          runs on a GPU, in a fresh process
extrapolation.py    estimates the time of merges that were not learned
contest.py          measures the rows one after another, and compares their merges
page.py             the table, the chart and the files of a result
suites.py           corpora and vocabulary sizes in the shape of the original guides
"""
