package image

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"sluice/lab/guest"
)

//go:embed files
var files embed.FS

//go:embed overlay
var overlay embed.FS

// Options say what goes into an image.
type Options struct {
	Cache  string            // folder for Debian's packages; it is made
	Sluice string            // the program for arm64
	FAT    map[string][]byte // files on the FAT partition, beside its own, by path
}

// tools are the programs that Build calls, and Debian's packages that have them.
var tools = map[string]string{
	"mkfs.vfat": "dosfstools", "mcopy": "mtools", "mmd": "mtools", "mksquashfs": "squashfs-tools",
	"mke2fs": "e2fsprogs", "mkimage": "u-boot-tools", "depmod": "kmod",
}

// Build writes an image to a file, which has holes where nothing is. It takes
// seconds, and minutes the first time, when it downloads Debian's packages.
func Build(ctx context.Context, out string, o Options) (err error) {
	for tool, pkg := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("build an image: %s is missing: apt-get install %s", tool, pkg)
		}
	}
	k, err := guest.FindKernel(ctx, guest.ARM64, o.Cache)
	if err != nil {
		return fmt.Errorf("build an image: %w", err)
	}
	debian, err := guest.Packages(ctx, guest.ARM64, o.Cache, packages...)
	if err != nil {
		return fmt.Errorf("build an image: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(out), "image-")
	if err != nil {
		return fmt.Errorf("build an image: %w", err)
	}
	defer os.RemoveAll(work)
	b := builder{Options: o, kernel: k, debian: debian, work: work, out: out}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"write the partition table", b.table},
		{"make the initramfs", b.initramfs},
		{"make the system", b.system},
		{"make the FAT partition", b.fat},
		{"make the data partition", b.data},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("build an image: %s: %w", step.what, err)
		}
	}
	return nil
}

type builder struct {
	Options
	kernel guest.Kernel
	debian string // folder with Debian's packages
	work   string // folder that is removed at the end
	out    string
}

// table makes the disk and writes its first sector.
func (b *builder) table(context.Context) (err error) {
	f, err := os.Create(b.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(diskSize); err != nil {
		return err
	}
	_, err = f.WriteAt(bootRecord(), 0)
	return err
}

// initramfs makes what the kernel starts first.
func (b *builder) initramfs(context.Context) (err error) {
	f, err := os.Create(b.path("initrd"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	modules, err := b.kernel.Modules(early...)
	if err != nil {
		return err
	}
	script, err := files.ReadFile("files/init")
	if err != nil {
		return err
	}
	a := guest.NewArchive(f)
	for _, dir := range []string{"/dev", "/proc", "/sys", "/root"} {
		if err := a.Dir(dir); err != nil {
			return err
		}
	}
	var order strings.Builder
	for _, m := range modules {
		name := path.Base(m.Path)
		fmt.Fprintln(&order, name)
		if err := a.Bytes("/modules/"+name, m.Content); err != nil {
			return err
		}
	}
	if err := a.Bytes("/modules.order", []byte(order.String())); err != nil {
		return err
	}
	if err := a.Bytes("/init", script); err != nil {
		return err
	}
	if err := a.File("/bin/busybox", b.busybox()); err != nil {
		return err
	}
	return a.End()
}

// system makes the squashfs and puts it into both slots.
func (b *builder) system(ctx context.Context) error {
	root := b.path("root")
	if err := b.tree(ctx, root); err != nil {
		return err
	}
	image := b.path("system.squashfs")
	// zstd at its fastest: the image is made at every test.
	if err := run(ctx, "mksquashfs", root, image, "-quiet", "-no-progress", "-all-root", "-comp", "zstd", "-Xcompression-level", "1"); err != nil {
		return err
	}
	for _, start := range []int64{slotAStart, slotBStart} {
		if err := b.put(image, start, systemSize); err != nil {
			return err
		}
	}
	return nil
}

// fat makes the partition that a technician sees.
func (b *builder) fat(ctx context.Context) error {
	image := b.path("fat")
	if err := run(ctx, "mkfs.vfat", "-F", "32", "-n", "SLUICE", "-C", image, fmt.Sprint(fatSize/1024)); err != nil {
		return err
	}
	script, err := fs.Sub(files, "files")
	if err != nil {
		return err
	}
	if err := os.CopyFS(b.path("files"), script); err != nil {
		return err
	}
	if err := run(ctx, "mkimage", "-A", "arm64", "-T", "script", "-C", "none", "-n", "sluice", "-d", b.path("files/boot.cmd"), b.path("boot.scr")); err != nil {
		return err
	}
	dirs := []string{"::A", "::B", "::certs"}
	if err := run(ctx, "mmd", append([]string{"-i", image}, dirs...)...); err != nil {
		return err
	}
	copies := [][2]string{{b.path("boot.scr"), "boot.scr"}, {b.path("files/README.txt"), "README.txt"}}
	for _, slot := range []string{"A", "B"} {
		copies = append(copies, [2]string{b.kernel.Image, slot + "/vmlinuz"}, [2]string{b.path("initrd"), slot + "/initrd"})
	}
	for name, content := range b.FAT {
		file := b.path("fat-" + strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
		copies = append(copies, [2]string{file, name})
	}
	for _, c := range copies {
		if err := run(ctx, "mcopy", "-i", image, c[0], "::"+c[1]); err != nil {
			return err
		}
	}
	return b.put(image, fatStart, fatSize)
}

// data makes the partition for what the gateway keeps.
func (b *builder) data(ctx context.Context) error {
	image := b.path("data")
	// The journal is as large as its traffic needs: it takes all data.
	if err := run(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "sluice-data", "-m", "0", "-E", "root_owner=0:0", image, fmt.Sprintf("%dK", dataSize/1024)); err != nil {
		return err
	}
	return b.put(image, dataStart, dataSize)
}

func (b *builder) path(name string) string { return filepath.Join(b.work, name) }

// put copies a file into the disk, leaving holes where it has zeros.
func (b *builder) put(file string, start, most int64) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if info.Size() > most {
		return fmt.Errorf("%s has %d bytes and the partition %d", filepath.Base(file), info.Size(), most)
	}
	out, err := os.OpenFile(b.out, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := start; ; {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// ReadFAT returns a file of the FAT partition of an image that no machine uses.
func ReadFAT(ctx context.Context, disk, name string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "mtype", "-i", fmt.Sprintf("%s@@%d", disk, fatStart), "::"+name)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read %s of the image's FAT partition: %w\n%s", name, errors.Join(err, ctx.Err()), complaints.Bytes())
	}
	return out, nil
}

// run runs a tool and returns what it said if it failed.
func run(ctx context.Context, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, errors.Join(err, ctx.Err()), out)
	}
	return nil
}
