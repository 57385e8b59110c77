#!/bin/sh
# Makes packages of one clawnode binary: a Python wheel, an npm package, a Debian package and, where a
# Docker engine answers, the image `clawnode:VERSION`, also as `clawnode:latest`. The same binary and the same SOURCE_DATE_EPOCH
# (the time of the last commit) make the same bytes; SHA256SUMS has their sums.
#
#   cargo build --profile dist -p clawnode
#   docker/packages.sh [BINARY] [OUT]      # target/dist/clawnode, target/packages
#   pip install target/packages/*.whl
#   npm install --global target/packages/*.tgz
#   apt-get install ./target/packages/*.deb
#
# Needs Python 3.8, tar, gzip, strip and dpkg-deb. A package runs where glibc is as new as the oldest
# one that the binary runs with, so build the binary on the oldest system that counts.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
binary=${1:-$root/target/dist/clawnode} out=${2:-$root/target/packages}
if [ ! -x "$binary" ]; then
    echo "$0: \`$binary\` is no executable; build it: cargo build --profile dist -p clawnode" >&2
    exit 1
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# One architecture has three names.
case $(uname -m) in
    x86_64) npm_cpu=x64 deb_architecture=amd64 ;;
    aarch64) npm_cpu=arm64 deb_architecture=arm64 ;;
    *)
        echo "$0: packages are made on x86-64 and 64-bit ARM alone" >&2
        exit 1
        ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/clawnode[-_]*.whl "$out"/clawnode[-_]*.tgz "$out"/clawnode[-_]*.deb "$out/SHA256SUMS"
strip -o "$work/clawnode" "$binary"

# Wheel.
python3 "$here/wheel.py" "$work/clawnode" "$version" "$root/LICENSE" "$out" > "$work/wheel"
glibc=$(sed -n 1p "$work/wheel")

# npm: the program itself is the command, without a script around it.
mkdir -p "$work/npm/package/bin"
cp "$work/clawnode" "$work/npm/package/bin/"
cp "$root/LICENSE" "$work/npm/package/"
cat > "$work/npm/package/package.json" <<JSON
{
  "name": "clawnode",
  "version": "$version",
  "description": "Runs AI agents as durable virtual actors",
  "license": "Apache-2.0",
  "bin": { "clawnode": "bin/clawnode" },
  "os": ["linux"],
  "cpu": ["$npm_cpu"],
  "libc": ["glibc"]
}
JSON
# Whatever the umask of the checkout was.
chmod -R u=rwX,go=rX "$work/npm"
tar -C "$work/npm" --sort=name --format=ustar --numeric-owner --owner=0 --group=0 \
    --mtime="@$SOURCE_DATE_EPOCH" -cf - package | gzip -n > "$out/clawnode-$version.tgz"

# Debian: the service runs as a user of its own, and is not started before somebody says so.
deb=$work/deb
mkdir -p "$deb/DEBIAN" "$deb/usr/bin" "$deb/usr/lib/systemd/system" "$deb/etc/clawnode" \
    "$deb/usr/share/doc/clawnode"
cp "$work/clawnode" "$deb/usr/bin/"
cp "$root/LICENSE" "$deb/usr/share/doc/clawnode/copyright"
# Manuals and completions, of the program itself.
share=$deb/usr/share
mkdir -p "$share/man/man1" "$share/bash-completion/completions" \
    "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$work/clawnode" man --out "$share/man/man1" 2>/dev/null
find "$share/man/man1" -type f -exec gzip -n9 {} +
"$work/clawnode" completions bash > "$share/bash-completion/completions/clawnode"
"$work/clawnode" completions zsh > "$share/zsh/vendor-completions/_clawnode"
"$work/clawnode" completions fish > "$share/fish/vendor_completions.d/clawnode.fish"
cp "$here/node.env" "$deb/etc/clawnode/"
sed -e '1,/^$/d' \
    -e 's|^ExecStart=.*|ExecStart=/usr/bin/clawnode up|' \
    -e 's|^DynamicUser=yes|User=clawnode\nGroup=clawnode|' \
    "$here/clawnode.service" > "$deb/usr/lib/systemd/system/clawnode.service"
cp "$here/debian/conffiles" "$here/debian/postinst" "$here/debian/prerm" "$here/debian/postrm" \
    "$deb/DEBIAN/"
chmod -R u=rwX,go=rX "$deb"
chmod 755 "$deb/DEBIAN/postinst" "$deb/DEBIAN/prerm" "$deb/DEBIAN/postrm"
# It holds keys.
chmod 600 "$deb/etc/clawnode/node.env"
libc="libc6 (>= $glibc), "
if [ "$glibc" = none ]; then libc=; fi
cat > "$deb/DEBIAN/control" <<CONTROL
Package: clawnode
Version: $version
Architecture: $deb_architecture
Maintainer: clawnode <clawnode@localhost>
Installed-Size: $(find "$deb" -type f -printf "%s\n" | awk '{ bytes += $1 } END { print int(bytes / 1024) + 1 }')
Depends: ${libc}libgcc-s1, adduser
Recommends: ca-certificates, bubblewrap
Section: net
Priority: optional
Description: runs AI agents as durable virtual actors
 A session with an agent has an inbox and a journal. A message is stored before it is answered, and a
 turn that a crash interrupts goes on at another process.
CONTROL
find "$deb" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zgzip --build "$deb" "$out/clawnode_${version}_$deb_architecture.deb" >/dev/null

if docker version >/dev/null 2>&1; then
    "$here/image.sh" "$work/clawnode" "clawnode:$version" >/dev/null
    docker tag "clawnode:$version" clawnode:latest
    echo "image clawnode:$version"
else
    echo "$0: no Docker engine answers, so no image is made" >&2
fi
(cd "$out" && sha256sum clawnode[-_]*.whl clawnode[-_]*.tgz clawnode[-_]*.deb > SHA256SUMS && cat SHA256SUMS)
