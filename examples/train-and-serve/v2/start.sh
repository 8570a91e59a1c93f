# MLServer on the port of this replica, with one process and without its other ports being taken twice.
export MLSERVER_HOST="$HOST" MLSERVER_HTTP_PORT="$PORT" MLSERVER_GRPC_PORT=0 MLSERVER_METRICS_PORT=0 MLSERVER_PARALLEL_WORKERS=0
exec python -m mlserver.cli.main start v2
