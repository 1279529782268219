// Package image assembles the appliance's image for QEMU's arm64 machine from
// Debian's kernel, BusyBox and tools, without Buildroot, so that what the
// technician relies on (partitions, boot script, first boot, configuration on the
// FAT partition) is booted in tests. It needs neither root nor loop devices.
//
// Two things differ from the images for boards. Debian's kernel has its drivers as
// modules, so that there is an initramfs; and Debian's U-Boot reads no squashfs, so
// that kernel and initramfs of each system lie in a folder of the FAT partition.
package image
