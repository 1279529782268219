package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// early are the modules that it takes to mount the system.
var early = []string{"virtio_mmio", "virtio_pci", "virtio_blk", "squashfs"}

// late are those that the system loads itself.
var late = []string{
	"vfat", "nls_cp437", "nls_ascii", "virtio_net", "sctp", "sctp_diag", "inet_diag", "tcp_diag",
	"tcp_bbr", "sch_fq", "tun", "wireguard",
}

// packages are those of Debian's that the system takes programs from, and the
// libraries that these need.
var packages = []string{
	"busybox-static", "e2fsprogs", "fdisk", "util-linux",
	"libc6", "libext2fs2", "libcom-err2", "libblkid1", "libuuid1", "libfdisk1", "libsmartcols1", "libtinfo6", "libreadline8",
}

// programs are those taken, beside BusyBox.
var programs = []string{"sbin/e2fsck", "sbin/resize2fs", "sbin/sfdisk", "usr/bin/partx"}

// applets are the names that BusyBox is called by in scripts, and by init.
const applets = `[ ash awk base64 basename cat chmod cmp cp cut date dd df dirname dmesg du echo env expr false
	find free getty grep halt head hexdump hostname ifconfig init insmod ip kill killall klogd ln logger login logread
	ls lsmod md5sum mkdir mknod mktemp modprobe more mount mountpoint mv nc nslookup ping pgrep pidof poweroff printf ps
	pwd readlink reboot rm rmdir rmmod route sed seq setsid sh sha256sum sleep sort start-stop-daemon stat stty sync
	sysctl syslogd tail tar tee test timeout top touch tr true udhcpc umount uname uniq uptime usleep vi watchdog wc
	wget which xargs`

func (b *builder) busybox() string { return filepath.Join(b.debian, "bin/busybox") }

// tree makes the system's files. All programs are in one folder, whatever path
// they are called by.
func (b *builder) tree(ctx context.Context, root string) error {
	for _, dir := range []string{"bin", "boot/fat", "data", "dev", "etc", "lib", "proc", "root", "run", "sys", "tmp", "usr", "var"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	links := map[string]string{
		"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin", "usr/lib": "../lib",
		"var/log": "../run/log", "var/run": "../run", "etc/resolv.conf": "../run/resolv.conf",
	}
	for name := range strings.FieldsSeq(applets) {
		links["bin/"+name] = "busybox"
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	copies := map[string]string{
		"bin/busybox": b.busybox(), "bin/sluice": b.Sluice,
		"boot/vmlinuz": b.kernel.Image, "boot/initrd": b.path("initrd"),
	}
	for _, p := range programs {
		copies["bin/"+path.Base(p)] = filepath.Join(b.debian, p)
	}
	for _, pattern := range []string{"lib/ld-linux-*", "lib/aarch64-linux-gnu/*.so*", "usr/lib/aarch64-linux-gnu/*.so*"} {
		found, err := filepath.Glob(filepath.Join(b.debian, pattern))
		if err != nil {
			return err
		}
		for _, file := range found {
			copies["lib/"+filepath.Base(file)] = file
		}
	}
	for name, from := range copies {
		if err := install(filepath.Join(root, name), from); err != nil {
			return err
		}
	}
	if err := b.modules(ctx, root); err != nil {
		return err
	}
	return lay(root)
}

// install copies a file, as a program.
func install(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// modules adds the kernel's, with an index for modprobe.
func (b *builder) modules(ctx context.Context, root string) error {
	modules, err := b.kernel.Modules(late...)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "lib/modules", b.kernel.Release)
	for _, m := range modules {
		file := filepath.Join(dir, filepath.FromSlash(m.Path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, m.Content, 0o644); err != nil {
			return err
		}
	}
	return run(ctx, "depmod", "-b", root, b.kernel.Release)
}

// lay puts the overlay over the system. What is not a program of it is known by
// its beginning.
func lay(root string) error {
	return fs.WalkDir(overlay, "overlay", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(root, strings.TrimPrefix(name, "overlay"))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		content, err := overlay.ReadFile(name)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(string(content), "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(to, content, mode); err != nil {
			return fmt.Errorf("add %s: %w", name, err)
		}
		return nil
	})
}
