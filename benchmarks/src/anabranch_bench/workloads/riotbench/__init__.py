"""RIoTBench: the IoT dataflows ETL, STATS, TRAIN and PRED over synthesised sensor streams.

`family.py` is what `anabranch run riotbench` finds; `etl.py`, `stats.py`, `train.py` and `pred.py`
are the pipelines, made of the tasks beside them; `oracle/` computes the same one message at a time.

Where the original leaves a choice or does not do what it means to:

- The sender is tested by the Bloom filter once for each message, and travels with the columns that
  are not processed. Values of an unknown sender are invalid; its messages have empty annotations.
- Every result carries the number of the message that caused it, and state is kept by (sensor,
  field), message or sensor: results do not depend on tasks, batches or workers.
- Distinct senders are counted by HyperLogLog, once for each message.
- Charts are collected by (statistic, share of the senders), not in one place.
- TRAIN keeps its table as keyed state by message; the watermark is the timer of its ranges.
- Averages of PRED are those of the sender; before the first one there is no error. Which models a
  message is predicted with is written down for each block of messages, so that a batch that runs
  again predicts the same.

Where parameters differ from the original's, so that a run of seconds shows something:

- Rates of runs are about a tenth of the benchmark's (FIT has its own), and constant. The daily rise
  and fall (CITY and GRID one peak, TAXI two, FIT none) is in the event times only, which run as
  fast as messages are sent: a day of them takes minutes to hours.
- TRAIN's ranges follow each other without gaps: 120 s for CITY (1000 s and 100 s, an hour apart),
  864 s for TAXI (a day apart), 10 s for FIT (60 s), 60 s for GRID.
- GRID's charts are flushed after 500 results of an accumulator, not after 8,000 of all.
- The Bloom filter is as large as the known senders need, not made for 20 million.
"""
