#!/bin/sh
# Makes a container image of a clawnode binary: the binary, the libraries that it loads, the
# certificates of this machine, and nothing else: no shell, no package manager. It runs as user
# 65532 and keeps its data in /var/lib/clawnode. No base image is pulled.
#
#   cargo build --profile dist -p clawnode
#   docker/image.sh target/dist/clawnode clawnode:latest
#
# Needs a binary built for this machine's libc, ldd, tar and docker.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 BINARY IMAGE" >&2
    exit 2
fi
binary=$1 image=$2
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [ ! -x "$binary" ]; then
    echo "$0: \`$binary\` is no executable; build it: cargo build --profile dist -p clawnode" >&2
    exit 1
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/var/lib/clawnode" "$root/tmp"
cp "$binary" "$root/usr/bin/clawnode"
# Every path that ldd names: the libraries and the loader, each at its own place.
for library in $(ldd "$binary" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
if [ -r "$certificates" ]; then
    cp -L "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
else
    echo "$0: no certificates at $certificates: models will not be reachable over TLS" >&2
fi
echo 'clawnode:x:65532:65532::/var/lib/clawnode:/usr/bin/clawnode' > "$root/etc/passwd"
echo 'clawnode:x:65532:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
chmod -R go+rX "$root" && chmod 1777 "$root/tmp"

# Owned by root but for the data, which a volume takes over with its owner.
tar -C "$root" --sort=name --numeric-owner --owner=0 --group=0 --exclude=./var/lib/clawnode \
    -cf "$root.tar" .
tar -C "$root" --numeric-owner --owner=65532 --group=65532 -rf "$root.tar" ./var/lib/clawnode
docker import \
    -c 'USER 65532:65532' \
    -c 'ENV HOME=/var/lib/clawnode CLAWNODE_NODE__DATA_DIR=/var/lib/clawnode' \
    -c 'VOLUME /var/lib/clawnode' \
    -c 'EXPOSE 3100' \
    -c 'ENTRYPOINT ["/usr/bin/clawnode"]' \
    -c 'CMD ["up"]' \
    "$root.tar" "$image"
rm -f "$root.tar"
