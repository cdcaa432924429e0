#!/bin/sh
# Installs Shoal from the unpacked tarball that this script is in.
#
#     ./install.sh              checks the machine, and says what it would do
#     ./install.sh --yes        does it
#
#     --prefix DIR   where programs go, below `bin`; default: /usr/local
#     --root DIR     the root of another system: nothing of this machine is checked or changed
#
# Ends with 1 if the machine cannot run Shoal, and with 64 if a flag is unknown.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/usr/local root='' yes=false fit=true

say() { printf '%s\n' "$*"; }
would() { if $yes; then say "  $*"; else say "  would $*"; fi; }
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
unfit() {
    say "  no: $*"
    fit=false
}

while [ $# -gt 0 ]; do
    case $1 in
    --yes) yes=true ;;
    --prefix | --root)
        [ $# -gt 1 ] || { say "install.sh: $1 needs a directory" >&2; exit 64; }
        if [ "$1" = --prefix ]; then prefix=$2; else root=$2; fi
        shift
        ;;
    --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit ;;
    *) say "install.sh: unknown flag $1: see --help" >&2; exit 64 ;;
    esac
    shift
done
case $prefix in /*) ;; *) say "install.sh: --prefix must be an absolute path: $prefix" >&2; exit 64 ;; esac

for file in bin/shoal bin/shoal-envd bin/shoal-runsc shoal.service; do
    [ -f "$here/$file" ] || { say "install.sh: $here has no $file: unpack the whole tarball" >&2; exit 1; }
done

# --- the machine ----------------------------------------------------------------------------

# Whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The packages of Debian whose program is missing.
packages() {
    for pair in nftables:nft btrfs-progs:mkfs.btrfs mmdebstrap:mmdebstrap mount:mount; do
        have "${pair#*:}" || printf '%s ' "${pair%%:*}"
    done
}

check_machine() {
    say "The machine:"
    machine=$(uname -sm)
    [ "$machine" = "Linux x86_64" ] || unfit "Shoal needs Linux on x86-64, and this is $machine"
    kernel=$(uname -r)
    at_least "$kernel" 5.15 || unfit "kernel $kernel: 5.15 or later is needed"
    memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
    [ "$memory" -ge 3500 ] || unfit "$memory MiB of memory: 4 GiB are needed"
    disk=$(df -Pm /var/lib | awk 'NR == 2 { print $4 }')
    [ "$disk" -ge 10240 ] || unfit "$disk MiB are free in /var/lib: 10 GiB are needed"
    $fit && say "  $machine, kernel $kernel, $memory MiB of memory, $disk MiB free in /var/lib"
    have runsc || say "  runsc is missing: the server starts when gVisor is installed (https://gvisor.dev/docs/user_guide/install)"
    have systemctl || say "  systemd is missing: start \`$prefix/bin/shoal serve\` by other means"
    wanted=$(packages)
    if [ -n "$wanted" ] && ! have apt-get; then
        say "  missing, and there is no apt-get: install the programs of $wanted"
        wanted=''
    fi
}

# --- the installation -----------------------------------------------------------------------

# Installs file $1 of the tarball as $2, with mode $3. A program that runs keeps its old file.
put() {
    would "install $root$2"
    $yes || return 0
    mkdir -p "$(dirname "$root$2")"
    cp "$here/$1" "$root$2.new"
    chmod "$3" "$root$2.new"
    mv -f "$root$2.new" "$root$2"
}

install_files() {
    say "Files:"
    before=$("$root$prefix/bin/shoal" --version 2>/dev/null || true)
    [ -z "$before" ] || say "  $root$prefix/bin has $before"
    # The others first: the server looks for them when it starts.
    for program in shoal-envd shoal-runsc shoal; do put "bin/$program" "$prefix/bin/$program" 755; done
    (cd "$here" && find share -type f) | sort | while read -r file; do put "$file" "$prefix/$file" 644; done
    put shoal.service /etc/systemd/system/shoal.service 644
    if $yes && [ "$prefix" != /usr/local ]; then
        sed -i "s|^ExecStart=/usr/local/bin/|ExecStart=$prefix/bin/|" "$root/etc/systemd/system/shoal.service"
    fi
}

wanted=''
[ -n "$root" ] || check_machine
$fit || exit 1
if $yes && [ -z "$root" ] && [ "$(id -u)" -ne 0 ]; then
    say "install.sh: run it as root" >&2
    exit 1
fi
if [ -n "$wanted" ]; then
    say "Packages:"
    would "install $wanted"
    # shellcheck disable=SC2086 # words are meant
    ! $yes || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null
fi
install_files
if ! $yes; then
    say "Nothing was changed. ./install.sh --yes does it."
elif [ -z "$root" ] && have systemctl; then
    systemctl daemon-reload || true
    say "Start it with \`systemctl enable --now shoal\`; a server that runs is replaced by \`systemctl restart shoal\`."
    say "\`shoal doctor\` says what the machine still lacks."
fi
