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
#             sctp-multi  over two such chains, on channels of their own
#             ms-sctp     the same with [MS] Algorithm 1, in slots of 16 s
#   PER       0 to 0.5
#   END       seconds; traffic starts at 0
# Output: the trace of the link from start to M0 and of the agent at the end. With
# one chain nodes 0 and 6 are start and end; with two, 0 and 9 of the first and 2
# and 13 of the second.
source ms-sctp.tcl
lassign $argv protocol per seed end
set chains [expr {$protocol in {sctp-multi ms-sctp} ? 2 : 1}]
ns-random $seed
set ns [new Simulator]
# Addresses in domains let wired and wireless nodes reach each other: the wired
# nodes are in the first, each chain's others in one of their own.
$ns node-config -addressType hierarchical
AddrParams set domain_num_ [expr {1 + $chains}]
AddrParams set cluster_num_ [concat [expr {2 * $chains}] [lrepeat $chains 1]]
AddrParams set nodes_num_ [concat [lrepeat [expr {2 * $chains}] 1] [lrepeat $chains 5]]
$ns trace-all stdout
set topo [new Topography]
$topo load_flatgrid 1000 500
create-god [expr {5 * $chains}]
for {set c 0} {$c < $chains} {incr c} {
  set start($c) [$ns node 0.[expr {2 * $c}].0]
  set m0($c) [$ns node 0.[expr {2 * $c + 1}].0]
}
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
  -topoInstance $topo -agentTrace ON -routerTrace OFF -macTrace OFF \
  -movementTrace OFF -IncomingErrProc errors
# Wired routes are found only to nodes that no purely wireless one precedes.
for {set c 0} {$c < $chains} {incr c} {
  set channel($c) [new Channel/WirelessChannel]
  $ns node-config -wiredRouting ON -channel $channel($c)
  set m1($c) [$ns node [expr {$c + 1}].0.0]
}
for {set c 0} {$c < $chains} {incr c} {
  $ns node-config -wiredRouting OFF -channel $channel($c)
  set chain [list $m1($c)]
  for {set i 1} {$i <= 4} {incr i} {
    set n [$ns node [expr {$c + 1}].0.$i]
    $n base-station [AddrParams addr2id [$m1($c) node-addr]]
    lappend chain $n
  }
  set x 50
  foreach n $chain {
    $n random-motion 0
    $n set X_ $x; $n set Y_ 250; $n set Z_ 0
    incr x 200
  }
  $ns duplex-link $start($c) $m0($c) 40Mb 2ms DropTail
  $ns duplex-link $m0($c) $m1($c) 40Mb 2ms DropTail
  lappend paths [list $start($c) [lindex $chain end]]
}
switch $protocol {
  tcp-default { set tx [new Agent/TCP];       set rx [new Agent/TCPSink] }
  tcp         { set tx [new Agent/TCP/Sack1]; set rx [new Agent/TCPSink/Sack1]
                $tx set packetSize_ 1460 }
  sctp - sctp-multi - ms-sctp { set tx [new Agent/SCTP];      set rx [new Agent/SCTP]
                foreach a [list $tx $rx] { $a set mtu_ 1500; $a set dataChunkSize_ 1468 } }
  default { error "unknown protocol $protocol" }
}
# multihome lets an agent use nodes as its interfaces. A multi-homed agent asks the
# routes of a core node which interface leads to an address. A wireless node has no
# link to a core, and an address with domains no single classifier to ask, so here
# the routes are a classifier of our own, and the links only names for interfaces.
proc multihome {agent nodes peers} {
  set routes [new Classifier/Hash/Dest 32]
  $routes set mask_ 0xffffffff
  $routes set shift_ 0
  $agent set-multihome-core $routes
  $agent instvar multihome_bindings_
  foreach node $nodes peer $peers {
    $node attach $agent
    set link [new Connector]
    $agent add-multihome-interface [$agent set agent_addr_] [$agent set agent_port_] [$node entry] $link
    lappend multihome_bindings_ [list [$agent set agent_addr_] [$agent set agent_port_]]
    $routes set-hash auto 0 [AddrParams addr2id [$peer node-addr]] 0 [$routes installNext $link]
  }
}
set starts [lmap p $paths { lindex $p 0 }]
set ends [lmap p $paths { lindex $p 1 }]
if {$chains == 1} {
  $ns attach-agent $starts $tx
  $ns attach-agent $ends $rx
} else {
  multihome $tx $starts $ends
  multihome $rx $ends $starts
}
$ns connect $tx $rx
if {$chains > 1} { $tx set-primary-destination [lindex $ends 0] }
if {$protocol eq "ms-sctp"} { ms-sctp $tx $paths 16 0.5 }
set ftp [new Application/FTP]
$ftp attach-agent $tx
$ns at 0 "$ftp start"
$ns at $end { $ns flush-trace; exit 0 }
$ns run
