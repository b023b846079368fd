"""A server over `Predictor`, and a page. Needs the extra ``serve`` (starlette, uvicorn), which only this room imports.

supervisor   the process that a user starts: binds the socket, starts workers, replaces dead ones, swaps models
worker       a process that answers: opens the models (memory-mapped, so all workers share them), runs uvicorn
application  from a request to an answer: token, limits, counters, log lines, problems
native, annif_api, conventions, page_files   the routes
hosted       a model as it is served: labels, counts, search, exact lists of allowed and excluded labels
batching     requests that arrive together are answered together, on a thread
"""
