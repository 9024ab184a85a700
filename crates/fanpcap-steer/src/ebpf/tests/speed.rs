//! What a packet costs.

use super::frames::*;
use super::*;

/// A program that does nothing, in the time that a trial itself takes.
fn nothing() -> Function {
    Function::Steer(Steer::To(0))
}

#[test]
#[ignore = "needs root: eBPF; says figures, of which only the coarsest can fail"]
fn the_usual_packet_costs_one_call() {
    const REPEAT: u32 = 1_000_000;
    let tunnels = tunnels();
    let vxlan = tunnels.iter().find(|(name, _)| *name == "vxlan");
    let frames = [
        ("udp4", udp4()),
        ("tcp4", tcp4()),
        ("udp6", udp6()),
        ("arp", arp()),
        ("vxlan", vxlan.map(|(_, frame)| frame.clone()).unwrap()),
        ("icmp", ethernet(0x0800, &v4(1, 0, &[8; 40]))),
    ];
    for (name, target) in [
        ("socket", &Socket { fanout: true } as &dyn Target),
        ("xdp", &Xdp),
    ] {
        let empty = Loaded::load(&object(&program(nothing()), target, DROP, true), "test").unwrap();
        let flow = object(&program(flow_mode()), target, DROP, true);
        let instructions = flow.instructions.len();
        let flow = Loaded::load(&flow, "test").unwrap();
        let apart = object(&program(flow_mode()), target, DROP, false);
        let apart = Loaded::load(&apart, "test").unwrap();
        println!(
            "{name}: {instructions} instructions, {} verified",
            flow.verified().unwrap()
        );
        for (what, frame) in &frames {
            let best = |loaded: &Loaded| {
                (0..3)
                    .map(|_| loaded.time(frame, REPEAT).unwrap().1)
                    .min()
                    .unwrap()
            };
            let (base, with) = (best(&empty), best(&flow));
            let walked = best(&apart);
            println!(
                "{name}, {what}: {with} ns, of which the trial itself {base} ns; {walked} ns by the walk"
            );
            assert!(with.saturating_sub(base) < 1000);
        }
    }
}
