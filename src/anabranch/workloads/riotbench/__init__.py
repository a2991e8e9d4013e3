"""RIoTBench: the IoT dataflows ETL, STATS, TRAIN and PRED over synthesised sensor streams.

`family.py` is what `anabranch run riotbench` finds; `etl.py`, `stats.py`, `train.py` and `pred.py`
are the pipelines, made of the tasks beside them; `oracle/` computes the same one message at a time.
"""
