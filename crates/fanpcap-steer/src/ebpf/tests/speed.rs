//! Measures the time for a packet.

use super::frames::*;
use super::*;
use crate::ir::Side;
use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::*;

/// A steering program that does nothing. It shows the time of a trial run itself.
fn nothing() -> Function {
    Function::Steer(Steer::To(0))
}

#[test]
#[ignore = "needs root: eBPF; prints measurements, of which only coarse limits can fail"]
fn the_usual_packet_costs_one_call() {
    const REPEAT: u32 = 100_000;
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
    for (name, target) in [("socket", Target::Fanout), ("xdp", Target::Xdp)] {
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
                "{name}, {what}: {with} ns, of which the trial itself takes {base} ns; {walked} ns with the walk"
            );
            assert!(with.saturating_sub(base) < 1000);
        }
    }
}

fn bare() -> Object {
    let mut asm = Assembler::new();
    asm.exit_with(1);
    asm.finish(ProgramKind::Xdp, Vec::new()).unwrap()
}

/// Tests that take long.
mod long {
    use super::*;

    /// Compares mode `flow` at XDP with a BPF program that does nothing. The BPF program of the
    /// mode reads its table, and then calls a delivery that does nothing.
    #[test]
    #[ignore = "needs root: eBPF; prints measurements, of which only coarse limits can fail"]
    fn steering_at_xdp_costs_little() {
        const REPEAT: u32 = 1_000_000;
        const ROUNDS: usize = 9;
        let frame = ethernet(0x0800, &v4(17, 0, &udp(1111, 2222, &[0; 18])));
        assert_eq!(frame.len(), 60);
        let table = table_at_xdp();
        let filter =
            Function::Sequence(vec![choice(Predicate::Port(Side::Either, 53)), flow_mode()]);
        let objects = [
            ("bare", bare()),
            (
                "to 0",
                xdp(&program(nothing()), GroupOptions::default(), &Nowhere).unwrap(),
            ),
            ("decision", xdp_decision(&program(flow_mode())).unwrap()),
            (
                "flow",
                xdp(&program(flow_mode()), GroupOptions::default(), &Nowhere).unwrap(),
            ),
            (
                "flow, ports",
                xdp(&program(filter), GroupOptions::default(), &Nowhere).unwrap(),
            ),
            (
                "sticky",
                xdp(
                    &program(flow_mode()),
                    GroupOptions::sticky(65_536),
                    &Nowhere,
                )
                .unwrap(),
            ),
            (
                "copy",
                xdp(&program(Function::Pass), GroupOptions::default(), &Nowhere).unwrap(),
            ),
        ];
        let loaded = objects.map(|(name, object)| (name, load_with(&object, &table).unwrap()));
        let mut times = vec![Vec::new(); loaded.len()];
        for _ in 0..ROUNDS {
            for ((_, loaded), times) in loaded.iter().zip(&mut times) {
                times.push(loaded.time(&frame, REPEAT).unwrap().1);
            }
        }
        let medians = times.into_iter().map(|mut times| {
            times.sort_unstable();
            (times[ROUNDS / 2], times[0], times[ROUNDS - 1])
        });
        for ((name, loaded), (median, least, most)) in loaded.iter().zip(medians) {
            let verified = loaded.verified().unwrap();
            println!(
                "{name}: {median} ns ({least}-{most}), the verifier visited {verified} instructions"
            );
        }
    }
}
