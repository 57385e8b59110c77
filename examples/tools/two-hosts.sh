#!/bin/sh
# Two hosts, of which only `b` has Docker, on one machine: the cluster of README.md beside this. Each
# is a namespace of networks, processes and mounts with an address of its own; beside them are the host
# of the bus and `db1`, which has an SSH server. The bus has keys, as `clawnode cluster init` makes
# them.
#
#   two-hosts.sh up               # all of it, with a node on each host
#   two-hosts.sh on a clawnode providers
#   two-hosts.sh chat             # at host `a`; `printf '...' | two-hosts.sh chat` is scripted
#   two-hosts.sh kill b           # the host dies: `kill -9` of all that runs there
#   two-hosts.sh start b          # it is switched on again
#   two-hosts.sh down             # nothing of it is left but its folder
#
# Needs root, and what `cargo xtest --setup` installs. The program is target/release/clawnode
# (`cargo build --release -p clawnode --features full`), or what CLAWNODE names; everything is kept in
# TWO_HOSTS (/tmp/clawnode-two-hosts). Agents use the model of MODEL (the demo).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
dir=${TWO_HOSTS:-/tmp/clawnode-two-hosts}
clawnode=${CLAWNODE:-$repository/target/release/clawnode}
tools=$repository/.tools
model=${MODEL:-demo/echo}

fail() {
    echo "$0: $1" >&2
    exit 1
}

address() {
    case $1 in
        bus) echo 10.77.0.1 ;;
        a) echo 10.77.0.10 ;;
        b) echo 10.77.0.11 ;;
        db1) echo 10.77.0.20 ;;
        *) fail "there is no host \`$1\`: name bus, a, b or db1" ;;
    esac
}

# The first process of a host; everything there ends with it.
first() {
    pid=$(cat "$dir/$1.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null && echo "$pid"
}

# Runs a command on a host.
on() {
    host=$1 && shift
    pid=$(first "$host") || fail "the host \`$host\` is not on: $0 start $host"
    nsenter --target "$pid" --net --pid --mount -- "$@"
}

# The same, with the environment of its node.
at() {
    host=$1 && shift
    on "$host" env -i "PATH=$PATH" "HOME=$dir/$host" USER=ada "TERM=${TERM:-dumb}" \
        "CLAWNODE_NODE__NAME=host-$host" "CLAWNODE_CONFIG=$dir/$host/config.toml" \
        "CLAWNODE_NODE__DATA_DIR=$dir/$host/data" "DOCKER_HOST=unix://$dir/$host/docker.sock" \
        "CLAWNODE_SANDBOX__DOCKER__SOCKET=$dir/$host/docker.sock" "$@"
}

# Waits until a command says yes.
await() {
    what=$1 && shift
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    fail "$what did not come; see $dir/*/*.log"
}

# Switches a host on: its namespaces, and a first process that reaps what others leave.
switch_on() {
    host=$1
    if first "$host" >/dev/null; then return; fi
    mkdir -p "$dir/$host"
    nsenter --net="/run/netns/clawnode-$host" unshare --mount --pid --fork --kill-child --mount-proc \
        sh -c 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/passwd
               while :; do sleep 1 & wait $!; done' \
        clawnode-host "$dir/hosts" "$dir/passwd" >/dev/null 2>&1 </dev/null &
    echo $! > "$dir/$host.outer"
    for _ in $(seq 100); do
        pid=$(pgrep -P "$!" || true)
        if [ -n "$pid" ] && nsenter --target "$pid" --mount grep -q db1 /etc/hosts 2>/dev/null; then
            echo "$pid" > "$dir/$host.pid"
            return
        fi
        sleep 0.1
    done
    fail "the host \`$host\` cannot be switched on: this takes root, and namespaces"
}

start() {
    switch_on "$1"
    case $1 in
        bus)
            background bus nats sh -c 'cd "$1" && exec "$2" -c nats.conf' nats \
                "$dir/cluster/servers/bus" "$tools/nats/bin/nats-server"
            await "the bus" on bus "$clawnode" cluster users --dir "$dir/cluster"
            ;;
        db1)
            mkdir -p /run/sshd
            background db1 sshd /usr/sbin/sshd -D -e -f "$dir/db1/config"
            ;;
        b)
            start_docker
            start_node b
            ;;
        a) start_node a ;;
    esac
}

# Starts something on a host that stays.
background() {
    host=$1 log=$2 && shift 2
    at "$host" setsid "$@" >> "$dir/$host/$log.log" 2>&1 </dev/null &
}

start_docker() {
    if at b docker version >/dev/null 2>&1; then return; fi
    # What a host that died has left.
    rm -rf "$dir/b/docker.pid" "$dir/b/docker-exec" "$dir/b/docker.sock"
    background b docker dockerd --bridge=none --iptables=false --data-root "$dir/b/docker" \
        --exec-root "$dir/b/docker-exec" --pidfile "$dir/b/docker.pid" -H "unix://$dir/b/docker.sock"
    await "the Docker engine" at b docker version
    if ! at b docker image inspect busybox:local >/dev/null 2>&1; then
        mkdir -p "$dir/busybox/bin"
        cp /bin/busybox "$dir/busybox/bin"
        for tool in sh sleep echo wc cat; do ln -sf busybox "$dir/busybox/bin/$tool"; done
        tar -C "$dir/busybox" -c . | at b docker import - busybox:local >/dev/null
        at b docker import "$tools/python3-image.tar" python:local >/dev/null
    fi
}

start_node() {
    token=
    if [ ! -e "$dir/$1/joined" ]; then
        on bus "$clawnode" cluster join-token --dir "$dir/cluster" --role gateway,worker --json \
            > "$dir/$1/token"
        token=$(sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' "$dir/$1/token")
        mv "$dir/$1/token" "$dir/$1/joined"
    fi
    workspace=
    # Agents' files are on one host.
    if [ "$1" = a ]; then workspace=CLAWNODE_WORKSPACE__ROOT=$dir/a/files; fi
    background "$1" node env ${workspace:+"$workspace"} ${token:+"CLAWNODE_JOIN=$token"} \
        "$clawnode" --role gateway,worker --model "$model"
    await "the node of host \`$1\`" at "$1" "$clawnode" status
}

up() {
    if [ "$(id -u)" != 0 ]; then fail "namespaces take root"; fi
    if [ ! -x "$clawnode" ]; then
        fail "there is no $clawnode: cargo build --release -p clawnode --features full"
    fi
    for needed in "$tools/nats/bin/nats-server" "$tools/python3-image.tar" "$tools/mcp" \
        /bin/busybox /usr/sbin/sshd; do
        if [ ! -e "$needed" ]; then fail "there is no $needed: cargo xtest --setup"; fi
    done
    down
    rm -rf "$dir"
    mkdir -p "$dir/a/files" "$dir/b" "$dir/db1" "$dir/cluster"
    { cat /etc/hosts && echo "$(address db1) db1"; } > "$dir/hosts"
    # Whoever commands run as on `db1`; known to these hosts alone.
    { cat /etc/passwd && echo 'ops:x:65533:65533:ops:/tmp:/bin/sh'; } > "$dir/passwd"
    network
    ssh_server
    for host in a b; do
        cp "$here/config.toml" "$dir/$host/"
        cp -r "$tools/mcp" "$dir/$host/mcp"
        mkdir "$dir/$host/ssh" && cp "$dir/db1/id" "$dir/$host/ssh/id_ed25519"
        if [ -d "$here/plugins" ]; then cp -r "$here/plugins" "$dir/$host/plugins"; fi
    done
    switch_on bus
    on bus "$clawnode" cluster init --dir "$dir/cluster" --server "bus=$(address bus):4222" >/dev/null
    for host in bus db1 a b; do start "$host"; done
    await "the MCP server" at a sh -c '"$1" mcp show everything --json | grep -q echo' sh "$clawnode"
    echo "both hosts serve; talk to the agent: $0 chat"
}

network() {
    for host in bus a b db1; do ip netns add "clawnode-$host"; done
    ip -n clawnode-bus link add br0 type bridge
    ip -n clawnode-bus link set br0 up
    ip -n clawnode-bus addr add "$(address bus)/24" dev br0
    ip -n clawnode-bus link set lo up
    for host in a b db1; do
        ip -n clawnode-bus link add "to-$host" type veth peer name eth0 netns "clawnode-$host"
        ip -n clawnode-bus link set "to-$host" master br0 up
        ip -n "clawnode-$host" addr add "$(address "$host")/24" dev eth0
        ip -n "clawnode-$host" link set eth0 up
        ip -n "clawnode-$host" link set lo up
    done
}

ssh_server() {
    ssh-keygen -q -t ed25519 -N '' -C two-hosts -f "$dir/db1/host"
    ssh-keygen -q -t ed25519 -N '' -C two-hosts -f "$dir/db1/id"
    cat > "$dir/db1/config" <<CONFIG
ListenAddress $(address db1)
HostKey $dir/db1/host
PidFile none
UsePAM no
AuthorizedKeysFile none
AuthorizedKeysCommand /usr/bin/cat $dir/db1/id.pub
AuthorizedKeysCommandUser root
PasswordAuthentication no
KbdInteractiveAuthentication no
AcceptEnv CLAWNODE_*
CONFIG
}

# `kill -9` of all that runs on a host, containers included.
die() {
    pid=$(first "$1") || fail "the host \`$1\` is not on"
    kill -9 "$pid"
    rm -f "$dir/$1.pid"
}

down() {
    for host in a b db1 bus; do
        if first "$host" >/dev/null; then die "$host"; fi
        if [ -e "/run/netns/clawnode-$host" ]; then ip netns del "clawnode-$host"; fi
    done
}

case ${1:-} in
    up) up ;;
    start) start "${2:?name a host: a or b}" ;;
    kill) die "${2:?name a host: a or b}" ;;
    chat) shift && at a "$clawnode" chat "$@" ;;
    on)
        shift && host=${1:?name a host: a or b} && shift
        if [ "${1:-}" = clawnode ]; then shift && set -- "$clawnode" "$@"; fi
        at "$host" "$@"
        ;;
    down) down ;;
    *)
        sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
