package guest

import (
	"fmt"
	"strings"
)

// Arch is a processor architecture, by Go's name.
type Arch string

// The architectures that guests can have. AMD64 is the fastest on a PC.
const (
	ARM64 Arch = "arm64"
	ARM   Arch = "arm" // ARMv7
	AMD64 Arch = "amd64"
)

// machine is what QEMU, Debian and Go need to be told about an architecture.
type machine struct {
	qemu     string   // binary
	packages string   // Debian package that has it
	args     []string // machine, processor and the channel for reports
	console  string
	debian   string   // architecture
	kernel   string   // meta package of the kernel
	modules  []string // beside those that every guest has
	build    []string // environment of the go command
}

func (a Arch) machine() (machine, error) {
	// A Raspberry Pi 4 has a Cortex-A72; of the 32-bit processors that QEMU's virt
	// machine knows, the Cortex-A15 is nearest to a Pi 2's.
	const port = "virtserialport,chardev=report,name=" + reportPort
	switch a {
	case ARM64:
		return machine{
			qemu: "qemu-system-aarch64", packages: "qemu-system-arm",
			args:    []string{"-M", "virt", "-cpu", "cortex-a72", "-device", "virtio-serial-device", "-device", port},
			console: "ttyAMA0", debian: "arm64", kernel: "linux-image-cloud-arm64",
			modules: []string{"virtio_mmio"}, build: []string{"GOARCH=arm64"},
		}, nil
	case ARM:
		return machine{
			qemu: "qemu-system-arm", packages: "qemu-system-arm",
			args:    []string{"-M", "virt", "-cpu", "cortex-a15", "-device", "virtio-serial-device", "-device", port},
			console: "ttyAMA0", debian: "armhf", kernel: "linux-image-armmp",
			modules: []string{"virtio_mmio"}, build: []string{"GOARCH=arm", "GOARM=7"},
		}, nil
	case AMD64:
		return machine{
			qemu: "qemu-system-x86_64", packages: "qemu-system-x86",
			args:    []string{"-M", "q35", "-cpu", "max", "-device", "virtio-serial-pci", "-device", port},
			console: "ttyS0", debian: "amd64", kernel: "linux-image-cloud-amd64",
			modules: []string{"virtio_pci"}, build: []string{"GOARCH=amd64"},
		}, nil
	}
	return machine{}, fmt.Errorf("architecture %q is not one of %s", string(a), strings.Join([]string{string(ARM64), string(ARM), string(AMD64)}, ", "))
}

// common are the modules that every guest has. Those that they need come with
// them. A kernel that has one built in is as good.
func common() []string {
	return []string{
		"virtio_console", "veth", "tun", "sctp", "sch_netem", "sch_tbf", "tcp_bbr", "wireguard",
		"nf_tables", "nft_chain_nat", "nft_masq", "nf_conntrack_netlink",
		// So that netlink tells of sockets.
		"inet_diag", "tcp_diag", "sctp_diag",
	}
}

// silent are modules that others need without saying so in the index: they ask
// for an algorithm by its name. Newer kernels are without them.
func silent() []string { return []string{"crc32c_generic"} }
