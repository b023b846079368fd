"""A server over `Predictor`, and a page. Needs the extra ``serve`` (starlette, uvicorn), which only this room imports.

supervisor   the process that a user starts: binds the socket, starts workers, replaces dead ones, swaps models
trial        a process that tries whether a new version of a model can be opened
worker       a process that answers: opens the models (memory-mapped, so all workers share them), runs uvicorn
connection   what a client may send and how slowly it may read, before and after its request
application  from a request to an answer: token, limits, counters, log lines, problems
native, annif_api, conventions, shard_api, page_files   the routes; openapi describes them
service      what routes share: models, bodies and texts of requests, answers in parts
batching     requests that arrive together are answered together, on a thread
hosted       a model as it is served: labels, counts, search, exact lists of allowed and excluded labels
opened, front    such a model opened here, or in shards behind other servers (wire: what these send each other)
corrections  what people say about answers, kept in a file
"""
