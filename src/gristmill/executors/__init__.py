"""executors: who runs the tasks of a job: threads of this process, other processes, or the machines of a Ray cluster.

A job (counting the words of a corpus, or encoding it) is cut into tasks. A task is a function of Gristmill, the name of
a work folder and a number; everything else is read from files in that folder, and the result is a file there, with a
small `.ok` file beside it that has its size and checksum. So a task can run anywhere, twice, or again after a crash:
the result is the same bytes, and what was finished is not done again.

A new executor is one module, with a subclass of `Executor` and one of `Workers`, and one line in `EXECUTORS`. Retries,
copies of slow tasks and progress are the driver's, the same for all.

| in reading order | holds |
|---|---|
| `calls.py` | `Call`: a task by name; `perform`: running it; `Outcome` |
| `executor.py` | `Executor` and `Workers`: what is the same for all executors; their registry `EXECUTORS` |
| `local.py` | `Local`: threads of this process |
| `processes.py`, `process_worker.py` | `Processes`: child processes of this one |
| `ray_cluster.py`, `ray_connection.py`, `ray_worker.py` | `Ray`: the workers of a Ray cluster |
| `driver.py`, `watch.py` | `run_stages`: the calls of a job on the workers of an executor; what becomes of them |
| `summary.py` | figures of the tasks by machine and by stage |
| `work_folder.py` | `WorkFolder`: files that appear whole or not at all, in a folder of this machine |
| `remote_folder.py` | the same at a URL, such as `s3://bucket/work` |
| `done.py` | `.ok` files: what a task has made, and whether that is still there |
| `job.py` | `Job`: what is to be done, as it is written down for every worker; `open_job` |
"""

from gristmill.executors.executor import EXECUTORS, Executor, check_executor, executor_class
from gristmill.executors.local import Local
from gristmill.executors.processes import Processes
from gristmill.executors.ray_cluster import Ray

__all__ = ["EXECUTORS", "Executor", "Local", "Processes", "Ray", "check_executor", "executor_class"]
