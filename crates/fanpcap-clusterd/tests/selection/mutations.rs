//! Seeded bugs: the comparison with user space must find changes of single instructions.

use anyhow::Context;
use fanpcap_bpf::Object;
use fanpcap_clusterd::selector::Selector;
use fanpcap_linux::bpf::Hook;
use fanpcap_linux::interface;
use fanpcap_select::{Key, Program};
use fanpcap_testkit::{Veth, frames, netns};

use super::agreement::program;
use super::both::{Both, Event, context, events};

/// Changes the number in one instruction: an operand of arithmetic, an operand of a comparison, or
/// an offset.
fn mutant(object: &Object, at: usize) -> Option<Object> {
    let mut mutant = object.clone();
    let instruction = mutant.instructions.get_mut(at)?;
    let code = instruction.code();
    let is_number = code & 8 == 0;
    let other = instruction.with_immediate(instruction.immediate() ^ 1);
    *instruction = match code & 7 {
        1 => instruction.with_offset(instruction.offset().wrapping_add(1)),
        4 | 7 if is_number => other,
        // Calls, exits and unconditional jumps compare with no number, so they are not changed.
        5 | 6 if is_number && !matches!(code & 0xf0, 0x00 | 0x80 | 0x90) => other,
        _ => return None,
    };
    Some(mutant)
}

/// Whether the comparison with user space finds the mutant; `None` if the kernel refuses the
/// mutant.
fn is_found(mutant: &Object, program: &Program, events: &[Event], device: u32) -> Option<bool> {
    let kernel = Selector::load_object(mutant, program, None).ok()?;
    let mut both = Both::new(kernel, program);
    both.device = device;
    let agrees = events.iter().all(|event| both.happens(event).is_ok());
    Some(!agrees || both.counters().is_err() || !counts_on(&both.kernel))
}

/// Whether the count of a bucket stays right when the bucket's 16-bit counter wraps.
fn counts_on(kernel: &Selector) -> bool {
    const PACKETS: u32 = 70_000;
    let packet = frames::ethernet(0x0800, &frames::v4(17, 0, &frames::udp(1, 2, &[9; 18])));
    let seen = || kernel.counts().seen;
    let before = seen();
    kernel.program().run(&packet, &[], PACKETS).unwrap();
    let more: Vec<u64> = seen()
        .iter()
        .zip(before.iter())
        .map(|(now, before)| now.wrapping_sub(*before))
        .collect();
    more.iter()
        .filter(|more| **more > 0)
        .eq([&u64::from(PACKETS)])
}

#[test]
#[ignore = "needs root: eBPF"]
fn changed_instructions_are_found() {
    netns::within_new(|| {
        let _veth = Veth::new("sel-a", "sel-b", 2)?;
        let device = interface::index("sel-b").context("the device")?;
        let program = program(Key::Packet, 0x0bad_cafe);
        let selector = Selector::load(&program, None)?;
        // While the device runs a BPF program, its queues are available to XDP.
        let _attached = selector.program().attach(device, Hook::Driver)?;
        // Of the device's two queues, only one has its own lane.
        let frame = [9; 60];
        let trial = selector
            .program()
            .run(&frame, &context(&frame, device, 1), 1);
        trial.context("a frame of queue 1")?;
        find(&program, device);
        Ok(())
    })
    .unwrap();
}

/// Changes every fourth instruction of the BPF program, one at a time.
fn find(program: &Program, device: u32) {
    let object = program.object().unwrap();
    let events = events(1, 3000);
    let (mut found, mut missed, mut refused) = (0, Vec::new(), 0);
    // Only the main function is changed. The other functions walk over headers and are shared with
    // the steering programs, whose tests cover them.
    let main = object.functions[0] as usize;
    for at in (0..main).step_by(4) {
        match mutant(&object, at).map(|mutant| is_found(&mutant, program, &events, device)) {
            Some(Some(true)) => found += 1,
            Some(Some(false)) => missed.push(at),
            Some(None) => refused += 1,
            None => {}
        }
    }
    println!("{found} found, {refused} refused, not found: {missed:?}");
    // A change has no effect if the slow path gives the same result, the packet is counted in the
    // shared counters instead, the value is set again later, or this key does not use the
    // instruction. One of the changes that are not found makes packets with the claim `Mine` take
    // the path for the claim `Shared`. In the BPF program, both paths only pass the packet.
    assert!(found > 70 && missed.len() <= 17, "{missed:?}");
}
