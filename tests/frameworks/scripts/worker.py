"""The older contract of parameter-server jobs: POD_NAME, CLUSTER_CONFIG, and a server that the ps tasks join."""

import ast
import hashlib
import os
import signal
import time

import tensorflow.compat.v1 as tf

STEPS = 12
FOLDER = os.environ["LONGBOAT_CHECKPOINT_DIR"]
CRASH_AT = int(os.environ.get("CRASH_AT", "-1"))


def main() -> None:
    tf.disable_eager_execution()
    job, index, _ = os.environ["POD_NAME"].split("-", 2)
    task = int(index)
    members = ast.literal_eval(os.environ["CLUSTER_CONFIG"])
    filters = tf.ConfigProto(device_filters=["/job:ps", f"/job:{job}/task:{task}"])
    server = tf.train.Server(tf.train.ClusterSpec(members), job_name=job, task_index=task, config=filters)
    if job == "ps":
        print(f"ps {task} serves", flush=True)
        server.join()
    train(server, filters, task, len(members["worker"]))


def train(server: tf.train.Server, config: tf.ConfigProto, task: int, workers: int) -> None:
    newest = tf.train.latest_checkpoint(FOLDER)
    start = int(newest.rpartition("-")[2]) if newest else 0
    print(f"worker {task} starts at step {start}", flush=True)
    worker = f"/job:worker/task:{task}"
    with tf.device(tf.train.replica_device_setter(cluster=server.server_def.cluster, worker_device=worker)):
        step = tf.train.get_or_create_global_step()
        weights = tf.get_variable("weights", (4, 1), initializer=tf.zeros_initializer())
        batch = tf.random.normal((32, 4), seed=task)
        target = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
        loss = tf.reduce_mean((batch @ weights - batch @ target) ** 2)
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    missing = tf.report_uninitialized_variables()
    with tf.device("/job:ps/task:0"):
        finished = tf.FIFOQueue(workers, tf.int32, shared_name="finished")
        finish, count = finished.enqueue(task), finished.size()
    with tf.Session(server.target, config=config) as session:
        while task != 0 and len(session.run(missing)):
            time.sleep(0.1)  # MonitoredTrainingSession would look only every 30 s
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=task == 0,
        checkpoint_dir=FOLDER,
        save_checkpoint_steps=1,
        save_summaries_steps=None,
        save_summaries_secs=None,
        hooks=[tf.train.StopAtStepHook(last_step=STEPS)],
        config=config,
    ) as session:
        while not session.should_stop():
            now, _ = session.run([step, update])
            if task == 0 and start == 0 and 0 <= CRASH_AT <= now:
                os.kill(os.getpid(), signal.SIGKILL)
    with tf.Session(server.target, config=config) as session:
        session.run(finish)
        while session.run(count) < workers:
            time.sleep(0.05)
        digest = hashlib.sha256(session.run(weights).tobytes()).hexdigest()[:16]
    print(f"worker {task} ends at step {STEPS} with parameters {digest}", flush=True)


main()
