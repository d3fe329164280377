: "${HEAD:?the address of the first machine, as the other ones reach it}"
NODES=${NODES:-$nodes} GPUS=${GPUS:-$gpus} RAY_PORT=${RAY_PORT:-6379} WAIT=${WAIT:-900}
read -ra more <<< "${RAY_ARGS:-}"
node='' server='' waiting=''

fail() {
    echo "turnout: $1" >&2
    exit 1
}

# End a process of ours within so many seconds, the hard way if need be.
stop() {
    local second
    if [ -z "$1" ] || ! kill -TERM "$1" 2> /dev/null; then return 0; fi
    for ((second = 0; second < $2; second++)); do
        kill -0 "$1" 2> /dev/null || return 0
        sleep 1
    done
    kill -KILL "$1" 2> /dev/null || true
}

# vLLM first: it finishes the calls in flight, for which it needs the cluster.
finish() {
    trap '' TERM INT
    stop "$waiting" 5
    stop "$server" $((drain + 30))
    stop "$node" 20
}

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
    wait -n "$server" "$node" || fail "vLLM or the cluster ended"
}

follow() {
    local second
    for ((second = 0; second < WAIT; second++)); do
        (exec 3<> "/dev/tcp/$HEAD/$RAY_PORT") 2> /dev/null && break
        sleep 1
    done
    join --address="$HEAD:$RAY_PORT"
    wait "$node" || fail "the node left the cluster"
}

trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
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
