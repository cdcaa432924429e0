#!/bin/sh
# Serves one SSH connection on standard input with OpenSSH's server. The account `tester` exists in a mount namespace of its
# own alone: its home is DIR/home, its keys are in DIR/authorized_keys, the host key is DIR/host_key.
#
#     sshd.sh DIR [OPTION...]
set -eu
dir=$1
shift
if [ -z "${SHOAL_TEST_NAMESPACE:-}" ]; then
    SHOAL_TEST_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$dir" "$@"
fi
unset SHOAL_TEST_NAMESPACE
grep -v '^tester:' /etc/passwd >"$dir/passwd.$$"
echo "tester:*:64242:64242::$dir/home:${SHOAL_TEST_SHELL:-/bin/bash}" >>"$dir/passwd.$$"
mount --bind "$dir/passwd.$$" /etc/passwd
rm "$dir/passwd.$$"
mkdir -p /run/sshd
exec /usr/sbin/sshd -i -e -f /dev/null -h "$dir/host_key" \
    -o AuthorizedKeysFile="$dir/authorized_keys" -o StrictModes=no -o UsePAM=no -o PasswordAuthentication=no \
    -o PidFile=none -o PrintMotd=no -o PrintLastLog=no -o LogLevel=ERROR "$@" \
    -o Subsystem="sftp ${SHOAL_TEST_SFTP:-internal-sftp}"
