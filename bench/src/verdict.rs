//! BPF programs of the bench for the reader's device. They show the highest rate that any engine
//! could reach.

use anyhow::{Context, Result};
use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::{Assembler, Label, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Width};
use fanpcap_linux::bpf::LoadedProgram;
use serde::Deserialize;

/// The device's action on a frame, before the frame becomes an skb.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Passes the frame to the stack.
    Pass,
    /// Drops the frame.
    Drop,
    /// Hashes addresses and ports, then drops the frame: the least work that an engine must do.
    Parse,
    /// Does the same as `Parse`, and also reads the clock.
    Stamp,
}

/// enum xdp_action of linux/bpf.h.
const DROP: i32 = 1;
const PASS: i32 = 2;
/// `bpf_ktime_get_ns`.
const NOW: i32 = 5;

impl Verdict {
    /// Loads the BPF program.
    pub(crate) fn load(self) -> Result<LoadedProgram> {
        let mut asm = Assembler::new();
        match self {
            Self::Pass => end(&mut asm, PASS),
            Self::Drop => end(&mut asm, DROP),
            Self::Parse => parse(&mut asm, false),
            Self::Stamp => parse(&mut asm, true),
        }
        let object = asm.finish(ProgramKind::Xdp, Vec::new());
        let code = object.context("assembling a verdict")?.instructions;
        Ok(LoadedProgram::load(ProgramKind::Xdp, "verdict", &code)?)
    }
}

fn end(asm: &mut Assembler, action: i32) {
    asm.exit_with(action);
}

/// Passes frames that are not UDP or TCP over IPv4, and frames with one particular hash. Drops all
/// others. The comparison with this hash is there so that the kernel can't remove the computation
/// of the hash.
fn parse(asm: &mut Assembler, stamps: bool) {
    let pass = asm.label();
    hash(asm, pass);
    asm.jump32_if(R6.is(12_345), pass);
    if stamps {
        asm.call(NOW, ());
        asm.jump_if(R0.is(0), pass);
    }
    end(asm, DROP);
    asm.bind(pass);
    end(asm, PASS);
}

/// Offsets in a frame of Ethernet and IPv4 without options.
const ETHER_TYPE: i16 = 12;
const IPV4: i16 = 14;
const FRAGMENT: i16 = 20;
const PROTOCOL: i16 = 23;
const SOURCE: i16 = 26;
const DESTINATION: i16 = 30;
const PORTS: i16 = 34;
const PORTS_LEN: i32 = 8;

/// Sets r6 to a symmetric hash of addresses, protocol and ports.
fn hash(asm: &mut Assembler, other: Label) {
    // struct xdp_md: data, data_end.
    asm.load(Width::Word, R2, R1, 0);
    asm.load(Width::Word, R3, R1, 4);
    asm.set(R4, R2 + i32::from(PORTS));
    asm.jump_if(R4.above(R3), other);
    asm.load_big_endian(Width::Half, R5, R2, ETHER_TYPE);
    asm.jump_if(R5.is_not(0x0800), other);
    let known = asm.label();
    asm.load(Width::Byte, R5, R2, PROTOCOL);
    asm.jump_if(R5.is(17), known);
    asm.jump_if(R5.is_not(6), other);
    asm.bind(known);
    asm.load(Width::Word, R6, R2, SOURCE);
    asm.load(Width::Word, R7, R2, DESTINATION);
    asm.set32(R6, (R6 ^ R7) * 0x1e37_79b1);
    add_ports(asm);
    asm.alu32(Op::Xor, R6, R5);
    for (shift, factor) in [(15, 0x2c1b_3c6d), (12, 1)] {
        asm.set(R0, R6);
        asm.alu32(Op::Right, R0, shift);
        asm.set32(R6, (R6 ^ R0) * factor);
    }
}

/// Mixes the ports into r6, if the header has no options and the packet is no fragment.
fn add_ports(asm: &mut Assembler) {
    let without = asm.label();
    asm.load(Width::Byte, R8, R2, IPV4);
    asm.jump_if(R8.is_not(0x45), without);
    asm.load_big_endian(Width::Half, R8, R2, FRAGMENT);
    asm.alu(Op::And, R8, 0x3fff);
    asm.jump_if(R8.is_not(0), without);
    asm.alu(Op::Add, R4, PORTS_LEN);
    asm.jump_if(R4.above(R3), without);
    asm.load(Width::Half, R8, R2, PORTS);
    asm.load(Width::Half, R9, R2, PORTS + 2);
    asm.set(R0, R8);
    asm.set32(R0, (R0 ^ R9) * 0x05eb_ca6b);
    asm.alu32(Op::Xor, R6, R0);
    asm.alu32(Op::Add, R8, R9);
    asm.alu32(Op::Xor, R6, R8);
    asm.bind(without);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::frames::{ethernet, udp, v4};

    fn frame() -> Vec<u8> {
        ethernet(0x0800, &v4(17, 0, &udp(2, 3, &[0; 18])))
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_frame_of_the_bench_is_passed_or_dropped() {
        let frame = frame();
        for (verdict, action) in [
            (Verdict::Pass, PASS),
            (Verdict::Drop, DROP),
            (Verdict::Parse, DROP),
            (Verdict::Stamp, DROP),
        ] {
            let run = verdict.load().unwrap().run(&frame, &[], 1).unwrap();
            assert_eq!(i32::try_from(run.verdict), Ok(action), "{verdict:?}");
        }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_is_not_parsed_passes() {
        let mut frame = frame();
        frame[23] = 1;
        let run = Verdict::Parse.load().unwrap().run(&frame, &[], 1).unwrap();
        assert_eq!(i32::try_from(run.verdict), Ok(PASS));
    }
}
