# [MS] 2.1: a chain of two wired and four wireless hops.
#
#   start --- M0 --- M1 ))) N0 ))) N1 ))) N2 ))) end
#
# Wired links carry 5 MByte/s in 2 ms. Wireless hops are IEEE 802.11 at 1
# MByte/s with slots of 20 us; every frame that a radio receives, the
# acknowledgements of the link layer among them, is lost with probability PER.
# The nodes are 200 m apart, so that each reaches its neighbours only.
#
# Usage: ns ms-chain.tcl PROTOCOL PER SEED END
#   PROTOCOL  tcp, sctp; tcp-default is the simulator's TCP as it comes
#   PER       0 to 0.5
#   END       seconds; traffic starts at 0
# Output: the trace of the link from start to M0 and of the agent at the end.
lassign $argv protocol per seed end
ns-random $seed
set ns [new Simulator]
# Addresses in two domains let wired and wireless nodes reach each other.
$ns node-config -addressType hierarchical
AddrParams set domain_num_ 2
AddrParams set cluster_num_ {2 1}
AddrParams set nodes_num_ {1 1 5}
$ns trace-all stdout
set topo [new Topography]
$topo load_flatgrid 1000 500
create-god 5
set start [$ns node 0.0.0]
set m0 [$ns node 0.1.0]
# Every frame is received at every neighbour through an error model of its own.
proc errors {} {
  global per
  set e [new ErrorModel]
  $e unit pkt
  $e set rate_ $per
  $e ranvar [new RandomVariable/Uniform]
  return $e
}
Mac/802_11 set SlotTime_ 0.000020
Mac/802_11 set dataRate_ 8Mb
Mac/802_11 set basicRate_ 1Mb
$ns node-config -adhocRouting DSDV -llType LL -macType Mac/802_11 \
  -ifqType Queue/DropTail/PriQueue -ifqLen 50 -antType Antenna/OmniAntenna \
  -propType Propagation/TwoRayGround -phyType Phy/WirelessPhy \
  -channel [new Channel/WirelessChannel] -topoInstance $topo \
  -wiredRouting ON -agentTrace ON -routerTrace OFF -macTrace OFF \
  -movementTrace OFF -IncomingErrProc errors
set m1 [$ns node 1.0.0]
$ns node-config -wiredRouting OFF
set chain [list $m1]
for {set i 1} {$i <= 4} {incr i} {
  set n [$ns node 1.0.$i]
  $n base-station [AddrParams addr2id [$m1 node-addr]]
  lappend chain $n
}
set x 50
foreach n $chain {
  $n random-motion 0
  $n set X_ $x; $n set Y_ 250; $n set Z_ 0
  incr x 200
}
$ns duplex-link $start $m0 40Mb 2ms DropTail
$ns duplex-link $m0 $m1 40Mb 2ms DropTail
switch $protocol {
  tcp-default { set tx [new Agent/TCP];       set rx [new Agent/TCPSink] }
  tcp         { set tx [new Agent/TCP/Sack1]; set rx [new Agent/TCPSink/Sack1]
                $tx set packetSize_ 1460 }
  sctp        { set tx [new Agent/SCTP];      set rx [new Agent/SCTP]
                foreach a [list $tx $rx] { $a set mtu_ 1500; $a set dataChunkSize_ 1468 } }
  default { error "unknown protocol $protocol" }
}
$ns attach-agent $start $tx
$ns attach-agent [lindex $chain end] $rx
$ns connect $tx $rx
set ftp [new Application/FTP]
$ftp attach-agent $tx
$ns at 0 "$ftp start"
$ns at $end { $ns flush-trace; exit 0 }
$ns run
