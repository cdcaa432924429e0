//! The scripts that run in a sandbox for steps other than the user's own commands.
//!
//! Each is a script for `/bin/sh`, which nearly every image has, and runs as root. Input of a user is
//! an argument and never part of the script.

/// The beginning of scripts that create accounts. In an image without a program for that, they edit
/// the files in the same way. An account that is missing from `shadow` could not become root.
macro_rules! accounts {
    () => {
        r#"
set -eu
# Not every image says where these programs are.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
have() { command -v "$1" >/dev/null 2>&1; }
add() {
    if have useradd; then useradd --create-home --shell /bin/bash "$1"
    elif have adduser; then adduser -D -s /bin/bash "$1"
    else
        number=1000
        while grep -q "^[^:]*:[^:]*:$number:" /etc/passwd /etc/group; do number=$((number + 1)); done
        echo "$1:x:$number:$number::/home/$1:/bin/bash" >> /etc/passwd
        echo "$1:x:$number:" >> /etc/group
        if [ -e /etc/shadow ]; then echo "$1:*:20000:0:99999:7:::" >> /etc/shadow; fi
        mkdir -p "/home/$1"
        chown "$number:$number" "/home/$1"
    fi
}
may_be_root() {
    mkdir -p /etc/sudoers.d
    echo "$1 ALL=(ALL:ALL) NOPASSWD: ALL" > "/etc/sudoers.d/$1"
    chmod 0440 "/etc/sudoers.d/$1"
}
"#
    };
}

/// The exit code of [`PROVISION`] when some programs could not be installed.
pub(super) const INCOMPLETE: i32 = 75;

/// Provisions an image: the shell that clients use, their user with sudo, the programs that E2B
/// installs in every template, and the directories that clients write to. Argument: [`INCOMPLETE`].
///
/// An image without bash is refused. Other programs may stay missing when no mirror has them. Slow
/// mirrors do not block a build for long: apt has its own timeouts, so no installation is interrupted.
pub(super) const PROVISION: &str = concat!(
    accounts!(),
    r#"
within() {
    if timeout 9 true 2>/dev/null; then timeout "$@"
    # As BusyBox had it once.
    elif timeout -t 9 true 2>/dev/null; then timeout -t "$@"
    else shift; "$@"
    fi
}
apt() { apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@"; }
refreshed= bare_lists=
refresh() {
    if [ -n "$refreshed" ]; then return; fi
    refreshed=yes
    if have apt-get; then
        export DEBIAN_FRONTEND=noninteractive
        case $(ls /var/lib/apt/lists 2>/dev/null) in *_*) ;; *) bare_lists=yes ;; esac
        apt update -qq || :
    elif have pacman; then within 120 pacman -Sy --noconfirm || :
    fi
}
get() {
    refresh
    if have apt-get; then
        apt install -y -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@"
    elif have apk; then within 300 apk add --no-cache "$@"
    elif have dnf; then within 600 dnf install -y -q --setopt=timeout=20 --setopt=retries=1 "$@"
    elif have pacman; then within 600 pacman -S --needed --noconfirm "$@"
    else echo "no package manager is known here to get $*" >&2; return 65
    fi
}
has_roots() {
    for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        if [ -s "$bundle" ]; then return 0; fi
    done
    return 1
}
# The packages, as this image's own manager calls them, of what is not there.
missing() {
    ssh=openssh-server sockets=iproute2 processes=procps
    if have dnf; then sockets=iproute processes=procps-ng
    elif have pacman; then ssh=openssh processes=procps-ng
    fi
    for pair in sudo:sudo curl:curl git:git jq:jq less:less "ss:$sockets" "sshd:$ssh" "pgrep:$processes"; do
        have "${pair%%:*}" || echo "${pair#*:}"
    done
    has_roots || echo ca-certificates
}
if ! have bash; then
    echo "bash is missing and is installed"
    get bash || { echo "the image has no bash, and it cannot be installed" >&2; exit 65; }
fi
[ -x /bin/bash ] || ln -s "$(command -v bash)" /bin/bash
wanted=$(missing)
if [ -n "$wanted" ]; then
    echo "missing, and installed now:" $wanted
    # Nothing that is installed is to run in the sandbox of the build.
    policy=
    if [ ! -e /usr/sbin/policy-rc.d ] && [ -d /usr/sbin ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod 0755 "$policy"
    fi
    # One that no mirror has keeps the others from being installed: then each by itself, for a while.
    if ! get $wanted; then
        begun=$(date +%s)
        for one in $wanted; do
            if [ $(($(date +%s) - begun)) -gt 120 ]; then break; fi
            get "$one" || :
        done
    fi
    if [ -n "$policy" ]; then rm -f "$policy"; fi
    if have apt-get; then apt-get clean || :; fi
    if [ -n "$bare_lists" ]; then rm -rf /var/lib/apt/lists/*; fi
fi
if ! has_roots && have update-ca-certificates; then update-ca-certificates || :; fi
have tar || { echo "the image has no tar: files cannot be copied into it" >&2; }
id user >/dev/null 2>&1 || add user
mkdir -p /home/user /code
chown user: /home/user
chmod 0777 /code /usr/local
may_be_root user
wanted=$(missing)
if [ -n "$wanted" ]; then
    echo "not installed:" $wanted
    exit "$1"
fi
"#
);

/// Copies files to their target. Arguments: the archive, the path in it, the target (a trailing `/`
/// means a directory), the owner as `user` or `user:group`, the mode or nothing.
///
/// New directories belong to the owner, including the parents of the target. A new target directory
/// has the mode of its source.
pub(super) const COPY: &str = r#"
set -eu
archive=$1 path=$2 target=$3 owner=$4 mode=$5
case $owner in *:*) ;; *) owner=$owner:$(id -gn "$owner" 2>/dev/null || echo "$owner") ;; esac
make() {
    if [ ! -d "$1" ]; then
        make "$(dirname "$1")"
        mkdir "$1"
        chown "$owner" "$1"
    fi
}
temporary=$(mktemp -d /tmp/.copy.XXXXXX)
trap 'rm -rf "$temporary" "$archive"' EXIT
tar -xf "$archive" -C "$temporary"
rm -f "$archive"
source=$temporary/$path
if [ ! -e "$source" ] && [ ! -L "$source" ]; then
    echo "$path: there is no such file or directory" >&2
    exit 66
fi
chown -hR "$owner" "$source"
if [ -n "$mode" ]; then
    find "$source" ! -type l -exec chmod "$mode" {} +
fi
if [ -d "$source" ] && [ ! -L "$source" ]; then
    # A directory that is there stays as it is: whose, how open, and behind which link.
    if [ ! -d "$target" ]; then
        make "$target"
        if [ -n "$mode" ]; then chmod "$mode" "$target"
        elif [ -n "$path" ]; then chmod "$(stat -c %a "$source")" "$target"
        fi
    fi
    if tar --help 2>/dev/null | grep -q keep-directory-symlink; then
        tar -C "$source" -cf - . | tar -C "$target" --keep-directory-symlink --no-overwrite-dir -xpf -
    else
        before=$(stat -c '%a %u:%g' "$target")
        cp -a "$source/." "$target/"
        chmod "${before% *}" "$target"
        chown "${before#* }" "$target"
    fi
else
    case $target in */) into=yes ;; *) into= ;; esac
    if [ -n "$into" ] || [ -d "$target" ]; then
        make "$target"
        target=${target%/}/$(basename "$source")
    else
        make "$(dirname "$target")"
    fi
    rm -f "$target"
    mv "$source" "$target"
fi
"#;

/// The directory of Shoal's own files in a sandbox.
const SHOAL_DIRECTORY: &str = ".shoal";

/// The files that identify a sandbox. Each sandbox has its own.
const IDENTITY: [&str; 4] = [
    "etc/hosts",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
];

/// Whether a file, by its path below `/`, belongs to the sandbox and not to the stage. An identity
/// file is copied if the step names exactly that file.
pub(super) fn is_of_sandbox(path: &str, named: &str) -> bool {
    path.split('/').next() == Some(SHOAL_DIRECTORY) || path != named && IDENTITY.contains(&path)
}

/// Packs files of a stage for another stage. Runs in the root directory. Arguments: the archive, and
/// the path below the root, with the patterns `*`, `?` and `[]`. An empty path means all files of the
/// stage. Files of the sandbox are excluded, as in [`is_of_sandbox`].
///
/// Names in the archive begin with `./`: then every implementation of tar matches the exclusions from
/// the root on.
pub(super) const PACK: &str = r#"
set -eu
archive=$1 path=$2 IFS=
case $path in
    '') set -- * .[!.]* ;;
    *) set -- $path ;;
esac
for found; do
    shift
    if [ ! -e "$found" ] && [ ! -L "$found" ]; then continue; fi
    case $found in
        proc|sys|dev|.shoal|.shoal/*) continue ;;
        etc/hosts|etc/hostname|etc/machine-id|etc/resolv.conf)
            if [ "$found" = "$path" ]; then set -- "$@" "$found"; fi
            continue ;;
    esac
    set -- "$@" "./$found"
done
if [ $# = 0 ]; then
    echo "/$path: there is no such file or directory" >&2
    exit 66
fi
tar -cf "$archive" --exclude=".$archive" --exclude=./.shoal --exclude=./etc/hosts \
    --exclude=./etc/hostname --exclude=./etc/machine-id --exclude=./etc/resolv.conf -- "$@"
"#;

/// Creates the working directory of the next steps. Arguments: the path, and the owner of a new one.
pub(super) const WORKDIR: &str = r#"
set -eu
if [ ! -d "$1" ]; then
    mkdir -p "$1"
    chown "$2" "$1"
fi
"#;

/// Creates an account if it is missing. Arguments: its name, and `sudo` or nothing.
pub(super) const USER: &str = concat!(
    accounts!(),
    r#"
id "$1" >/dev/null 2>&1 || add "$1"
if [ "$2" = sudo ]; then may_be_root "$1"; fi
"#
);

/// The part of a path before the first pattern. Clients expand patterns themselves, and pack the
/// matches under their own names.
pub(super) fn without_pattern(path: &str) -> String {
    let plain = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .take_while(|part| !part.contains(['*', '?', '[']));
    plain.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
