# Chooses the system by RAUC's variables and starts it. They are kept in a file
# of the FAT partition, which a running system changes with fw_setenv.
test -n "${devnum}" || setenv devnum 0
setenv state uboot.env
setenv BOOT_ORDER "A B"
setenv BOOT_A_LEFT 3
setenv BOOT_B_LEFT 3
if load virtio ${devnum}:1 ${scriptaddr} ${state}; then
	env import -c ${scriptaddr} 0x4000 BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT
fi
setenv slot
for s in ${BOOT_ORDER}; do
	if test -z "${slot}" && test "${s}" = "A" && test 0x${BOOT_A_LEFT} -gt 0; then
		setexpr BOOT_A_LEFT ${BOOT_A_LEFT} - 1
		setenv slot A
		setenv rootpart 2
	fi
	if test -z "${slot}" && test "${s}" = "B" && test 0x${BOOT_B_LEFT} -gt 0; then
		setexpr BOOT_B_LEFT ${BOOT_B_LEFT} - 1
		setenv slot B
		setenv rootpart 3
	fi
done
if test -z "${slot}"; then
	echo "sluice-boot: no system has a try left; all are tried again"
	setenv BOOT_A_LEFT 3
	setenv BOOT_B_LEFT 3
	env export -c -s 0x4000 ${scriptaddr} BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT
	fatwrite virtio ${devnum}:1 ${scriptaddr} ${state} 0x4000
	reset
fi
env export -c -s 0x4000 ${scriptaddr} BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT
fatwrite virtio ${devnum}:1 ${scriptaddr} ${state} 0x4000
echo "sluice-boot: u-boot starts system ${slot}"
setenv bootargs "console=ttyAMA0 quiet panic=5 net.ifnames=0 root=/dev/vda${rootpart} rauc.slot=${slot}"
load virtio ${devnum}:1 ${kernel_addr_r} ${slot}/vmlinuz
load virtio ${devnum}:1 ${ramdisk_addr_r} ${slot}/initrd
booti ${kernel_addr_r} ${ramdisk_addr_r}:${filesize} ${fdtcontroladdr}
echo "sluice-boot: system ${slot} did not start"
reset
