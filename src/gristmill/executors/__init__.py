"""executors: run the tasks of a job in threads of this process, in other processes, or on a Ray cluster.

A job (counting the words of a corpus, or encoding it) is cut into tasks. A task is a function of Gristmill, the name of
a work folder and a number. It reads everything else from files in that folder and leaves its result in a file there,
with a small `.ok` file that records its size and checksum. So a task can run anywhere, twice, or again after a crash:
the result is the same bytes, and finished tasks are not repeated.

To add an executor, write a module with a subclass of `Executor` and one of `Workers`, and add a line to `EXECUTORS`.
The driver handles retries, copies of slow tasks and progress in the same way for all executors.

| in reading order | contents |
|---|---|
| `calls.py` | `Call`: a task by name; `perform`: running it; `Outcome` |
| `executor.py` | `Executor` and `Workers`: the base classes of executors; their registry `EXECUTORS` |
| `local.py` | `Local`: threads of this process |
| `processes.py`, `process_worker.py` | `Processes`: child processes |
| `ray_cluster.py`, `ray_connection.py`, `ray_worker.py` | `Ray`: the workers of a Ray cluster |
| `driver.py`, `watch.py` | `run_stages`: runs the calls of a job on the workers of an executor; progress |
| `summary.py` | statistics of the tasks per machine and per stage |
| `work_folder.py` | `WorkFolder`: files that appear complete or not at all, in a local folder |
| `remote_folder.py` | a work folder at a URL, such as `s3://bucket/work` |
| `done.py` | `.ok` files: the results of tasks, and whether they still exist |
| `job.py` | `Job`: the description of the work for every worker; `open_job` |
"""

from gristmill.executors.executor import EXECUTORS, Executor, check_executor, executor_class
from gristmill.executors.local import Local
from gristmill.executors.processes import Processes
from gristmill.executors.ray_cluster import Ray

__all__ = ["EXECUTORS", "Executor", "Local", "Processes", "Ray", "check_executor", "executor_class"]
