"""The older contract of a parameter-server job: POD_NAME and CLUSTER_CONFIG, and tf.train.Server joined by the ps tasks."""

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
    with tf.device(tf.train.replica_device_setter(cluster=server.server_def.cluster, worker_device=f"/job:worker/task:{task}")):
        step = tf.train.get_or_create_global_step()
        weights = tf.get_variable("weights", (4, 1), initializer=tf.zeros_initializer())
        finished = tf.get_variable("finished", (), tf.int32, initializer=tf.zeros_initializer())
        batch = tf.random.normal((32, 4), seed=task)
        target = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
        loss = tf.reduce_mean((batch @ weights - batch @ target) ** 2)
        update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        finish = finished.assign_add(1)
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
        start = session.run_step_fn(lambda context: context.session.run(step))
        print(f"worker {task} starts at step {start}", flush=True)
        while not session.should_stop():
            if task == 0 and start == 0 and CRASH_AT >= 0 and session.run_step_fn(lambda c: c.session.run(step)) >= CRASH_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            session.run(update)
    with tf.Session(server.target, config=config) as session:
        session.run(finish)
        while session.run(finished) < workers:
            time.sleep(0.05)
        digest = hashlib.sha256(session.run(weights).tobytes()).hexdigest()[:16]
    print(f"worker {task} ends at step {STEPS} with parameters {digest}", flush=True)


main()
