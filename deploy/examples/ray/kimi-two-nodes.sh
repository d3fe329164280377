#!/usr/bin/env bash
# turnout engine local --print ray: tensor parallel 8 x pipeline parallel 2 on 2 machine(s) with
# 8 GPU(s) each. Each has vLLM 0.32.0, Ray 2.60.0 and the checkpoint, at the path that it has here.
#
#     HEAD=10.0.0.1 bash FILE head          on the first machine, whose address that is
#     HEAD=10.0.0.1 bash FILE worker        on each other one
#
# The first serves when all have joined, on the port 8100 of its own address. To be set where needed: NODES, GPUS (of
# each machine), RAY_PORT, WAIT (seconds for the others), VLLM_HOST_IP (this machine's address), RAY_ARGS (`ray start`).
# Ray lets everybody in who reaches its ports: use a private network.
#
# What the gateway's routing.yaml has instead of `engine:` (give the machines' names):
#
# upstreams:
#   local:
#     base_url:
#       - http://head-0.example:8100
#     trust_env: false
set -euo pipefail
nodes=2
gpus=8
port=8100
drain=600
checkpoint=/srv/checkpoints/kimi-k2.5-ft
ray_version=2.60.0
key=''
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export VLLM_NO_USAGE_STATS=1
export VLLM_DO_NOT_TRACK=1

serve() {
    exec python3 -m vllm.entrypoints.openai.api_server \
        --model /srv/checkpoints/kimi-k2.5-ft \
        --served-model-name kimi-k2.5-ft \
        --port 8100 \
        --tensor-parallel-size 8 \
        --speculative-config '{"method":"mtp","num_speculative_tokens":3}' \
        --per-request-spec-decode-metrics summary \
        --max-model-len 262144 \
        --tool-call-parser kimi_k2 \
        --reasoning-parser kimi_k2 \
        --enable-auto-tool-choice \
        --trust-remote-code \
        --pipeline-parallel-size 2 \
        --distributed-executor-backend ray \
        --host "$VLLM_HOST_IP"
}

: "${HEAD:?the address of the first machine, as the other ones reach it}"
NODES=${NODES:-$nodes} GPUS=${GPUS:-$gpus} RAY_PORT=${RAY_PORT:-6379} WAIT=${WAIT:-900}
read -ra more <<< "${RAY_ARGS:-}"
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # nothing of Ray's is left to wait for, vLLM ends before its node
node='' server='' waiting=''
set -m # each process below is the head of a group: Ctrl-C reaches this script alone, and a group ends as a whole

say() {
    echo "turnout: $1" >&2
}

fail() {
    say "$1"
    exit 1
}

# End a process of ours within so many seconds, and then what is left of those it started: Ray leaves some.
stop() {
    local second
    if [ -z "$1" ]; then return 0; fi
    kill -TERM "$1" 2> /dev/null || true
    for ((second = 0; second < $2; second++)); do
        kill -0 "$1" 2> /dev/null || break
        sleep 1
    done
    kill -KILL -- "-$1" 2> /dev/null || true
}

# Return when vLLM runs no call, or after so many seconds, or when it does not answer. Over Ray its own --shutdown-timeout
# is without effect: Ray puts a handler of SIGTERM in the place of vLLM's, and every call is lost at once.
quiet() {
    python3 -c '
import http.client, re, sys, time
host, port, seconds = sys.argv[1], *map(int, sys.argv[2:])
end, calls = time.monotonic() + seconds, re.compile(r"^vllm:num_requests_(?:running|waiting)\{.* (\S+)$", re.MULTILINE)
while time.monotonic() < end:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        if not any(map(float, calls.findall(connection.getresponse().read().decode()))):
            break
    except (OSError, http.client.HTTPException):
        break
    finally:
        connection.close()
    time.sleep(0.5)
' "$VLLM_HOST_IP" "$port" "$drain" || true
}

# vLLM first: for the calls in flight it needs the cluster.
finish() {
    trap '' TERM INT
    stop "$waiting" 5
    if [ -n "$server" ]; then quiet; fi
    stop "$server" 15
    stop "$node" 10
}

trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

prepare() {
    [ -f "$checkpoint/config.json" ] || fail "the checkpoint $checkpoint is not on this machine"
    if ! command -v ray > /dev/null; then
        [ -n "${RAY_PACKAGE:-}" ] || fail "Ray is not installed here: pip install ray==$ray_version"
        python3 -m pip install --quiet --user "$RAY_PACKAGE"
        PATH="$HOME/.local/bin:$PATH"
        command -v ray > /dev/null || fail "$RAY_PACKAGE was installed, but there is no \`ray\`"
    fi
    export VLLM_HOST_IP=${VLLM_HOST_IP:-$(python3 -c '
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((sys.argv[1], 9))
    print(probe.getsockname()[0])' "$HEAD")}
}

join() {
    ray start --block --disable-usage-stats --node-ip-address="$VLLM_HOST_IP" --num-gpus="$GPUS" "$@" "${more[@]}" &
    node=$!
}

complete() {
    python3 -c '
import sys, time
import ray
address, nodes, gpus, seconds = sys.argv[1], *map(int, sys.argv[2:])
end, found = time.monotonic() + seconds, "no cluster"
while time.monotonic() < end:
    try:
        ray.init(address, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
        alive = [node for node in ray.nodes() if node["Alive"]]
        able = sum(node["Resources"].get("GPU", 0) for node in alive)
        if len(alive) >= nodes and able >= nodes * gpus:
            sys.exit()
        found = f"{len(alive)} machines with {able:g} GPUs"
    except (ConnectionError, RuntimeError):
        pass
    time.sleep(1)
sys.exit(f"turnout: {nodes} machines with {gpus} GPUs each are needed; after {seconds} s there is {found}")
' "$VLLM_HOST_IP:$RAY_PORT" "$NODES" "$GPUS" "$WAIT" &
    waiting=$!
    wait "$waiting"
    waiting=''
}

lead() {
    [ -z "$key" ] || [ -n "${!key:-}" ] || fail "set $key to the upstream's api_key"
    join --head --port="$RAY_PORT" --include-dashboard=false
    complete
    export RAY_ADDRESS="$VLLM_HOST_IP:$RAY_PORT"
    serve &
    server=$!
    wait -n "$server" "$node" || true
    say "vLLM or the cluster ended"
    return 1
}

follow() {
    local second
    for ((second = 0; second < WAIT; second++)); do
        (exec 3<> "/dev/tcp/$HEAD/$RAY_PORT") 2> /dev/null && break
        sleep 1
    done
    join --address="$HEAD:$RAY_PORT"
    wait "$node" || true
    say "the node left the cluster"
    return 1
}

case "${1:-}" in
    head)
        prepare
        lead
        ;;
    worker)
        prepare
        follow
        ;;
    *) fail "say \`head\` on the first machine, \`worker\` on the other ones" ;;
esac
