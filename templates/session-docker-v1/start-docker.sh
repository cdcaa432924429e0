#!/bin/sh
# Starts Docker's daemon, and returns when it answers; at once when it runs. Says why when it does not start.
# Images in /usr/local/share/docker-images are there from the start.
fail() {
    echo "$*"
    exit 1
}
[ "$(id -u)" -eq 0 ] || fail "only root may start Docker: sudo start-docker"
exec 9>/run/start-docker.lock && flock 9 || fail "cannot lock /run/start-docker.lock"
docker version >/dev/null 2>&1 && exit 0

# gVisor has overlays on tmpfs alone. A full one must not end the sandbox for want of memory.
data=/var/lib/docker
if ! mountpoint -q $data; then
    mkdir -p $data
    size=$(awk '/^MemTotal:/ { print int($2 / 2) "k" }' /proc/meminfo)
    mount -t tmpfs -o "mode=710,size=$size" tmpfs $data || fail "Docker needs a privileged sandbox"
fi

# Containers on a bridge reach the network by the address of the sandbox. Docker's own rules are more than gVisor has.
echo 1 >/proc/sys/net/ipv4/ip_forward
address=$(ip -4 -o addr show dev eth0 | awk '{ sub("/.*", "", $4); print $4; exit }')
for protocol in tcp udp; do
    rule="POSTROUTING -o eth0 -p $protocol -j SNAT --to-source $address"
    # shellcheck disable=SC2086 # words are meant
    iptables-legacy -t nat -C $rule 2>/dev/null || iptables-legacy -t nat -A $rule ||
        fail "the network of containers cannot be set up"
done

# What an earlier run has left does not count.
rm -rf /run/docker /run/docker.pid /run/docker.sock
log=/var/log/dockerd.log
setsid dockerd --iptables=false --ip6tables=false >$log 2>&1 9>&- </dev/null &
daemon=$!
until docker version >/dev/null 2>&1; do
    kill -0 $daemon 2>/dev/null || fail "Docker does not start: $(tail -n 3 $log)"
    sleep 0.1
done
for image in /usr/local/share/docker-images/*.tar; do
    [ ! -e "$image" ] || docker load --quiet --input "$image" >/dev/null || fail "cannot load $image"
done
