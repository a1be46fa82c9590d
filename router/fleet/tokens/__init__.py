"""Who turns a request into token ids, so that the exact index can be asked about it.

`local` does it with a tokenizer of ours, `remote` asks a replica's /tokenize, `provider` decides
who, remembers answers and bounds everything. No answer in time means the approximate index answers.
"""
