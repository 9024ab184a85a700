//! Lists a compiled object's code in the kernel's own notation (kernel/bpf/disasm.c). A note above
//! each section of the code states its purpose.

use crate::{Instruction, Object, Relocation};
use std::fmt::Write;

impl Object {
    /// The listing: one line for each instruction, and a line with the purpose above each section
    /// that has a note.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        let mut notes = self.notes.iter().peekable();
        let mut wide = false;
        for (at, &instruction) in self.instructions.iter().enumerate() {
            while let Some((_, note)) = notes.next_if(|(place, _)| *place <= at) {
                let _ = writeln!(text, "; {note}");
            }
            // The second half of a wide instruction was printed with the first.
            if std::mem::take(&mut wide) {
                continue;
            }
            wide = instruction.code() == 0x18;
            let _ = writeln!(text, "{at:5}: {}", self.line(at, instruction));
        }
        text
    }

    fn line(&self, at: usize, instruction: Instruction) -> String {
        let relocation = self.relocations.iter().find(|(place, _)| *place == at);
        let next = self.instructions.get(at + 1);
        let next = next.map_or(0, |next| next.immediate());
        let target = instruction.target();
        match relocation {
            Some((_, Relocation::Map(map))) => format!("r{target} = map{map}"),
            Some((_, Relocation::Value(map))) => format!("r{target} = &map{map} +{next}"),
            Some((_, Relocation::Start)) | None => line(instruction, at, next),
        }
    }
}

fn line(instruction: Instruction, at: usize, next: i32) -> String {
    let (target, source) = (instruction.target(), instruction.source());
    let (offset, immediate) = (instruction.offset(), instruction.immediate());
    let code = instruction.code();
    let size = match code & 0x18 {
        0x10 => "u8",
        0x08 => "u16",
        0x00 => "u32",
        _ => "u64",
    };
    match (code & 7, code) {
        (_, 0x18) => {
            let number = (u64::from(next as u32) << 32) | u64::from(immediate as u32);
            format!("r{target} = {number:#x}")
        }
        (1, _) => format!("r{target} = *({size} *)(r{source} {offset:+})"),
        (2, _) => format!("*({size} *)(r{target} {offset:+}) = {immediate}"),
        (3, 0xdb) if immediate & 1 == 1 => {
            let op = match immediate & 0xf0 {
                0x40 => "fetch_or",
                0x50 => "fetch_and",
                0xe0 => "xchg",
                _ => "fetch_add",
            };
            format!("r{source} = atomic_{op}(({size} *)(r{target} {offset:+}), r{source})")
        }
        (3, 0xdb) => format!("lock *({size} *)(r{target} {offset:+}) += r{source}"),
        (3, _) => format!("*({size} *)(r{target} {offset:+}) = r{source}"),
        (_, 0x85) if source == 1 => {
            format!("call pc{immediate:+} ; {}", reach(at, immediate))
        }
        (_, 0x85) => format!("call {}", helper(immediate)),
        (_, 0x95) => "exit".to_owned(),
        (_, 0x05) => format!("goto pc{offset:+} ; {}", reach(at, offset.into())),
        (_, 0xdc) => format!("r{target} = be{immediate} r{target}"),
        (4 | 7, _) => arithmetic(instruction),
        (5 | 6, _) => format!(
            "{} goto pc{offset:+} ; {}",
            condition(instruction),
            reach(at, offset.into())
        ),
        _ => format!("{code:#04x}"),
    }
}

fn reach(at: usize, distance: i32) -> i64 {
    i64::try_from(at).unwrap_or(0) + 1 + i64::from(distance)
}

/// The letter of registers, which is `r`, or `w` for 32 bits; and the text of the second operand.
fn operands(instruction: Instruction, narrow: u8) -> (char, String) {
    let letter = if instruction.code() & 7 == narrow {
        'w'
    } else {
        'r'
    };
    let operand = if instruction.code() & 8 == 0 {
        instruction.immediate().to_string()
    } else {
        format!("{letter}{}", instruction.source())
    };
    (letter, operand)
}

fn arithmetic(instruction: Instruction) -> String {
    let (letter, operand) = operands(instruction, 4);
    let target = instruction.target();
    let op = match instruction.code() & 0xf0 {
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        0x30 => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        0x80 => return format!("{letter}{target} = -{letter}{target}"),
        0x90 => "%=",
        0xa0 => "^=",
        _ => "=",
    };
    format!("{letter}{target} {op} {operand}")
}

fn condition(instruction: Instruction) -> String {
    let (letter, operand) = operands(instruction, 6);
    let op = match instruction.code() & 0xf0 {
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0xa0 => "<",
        0xc0 => "s<",
        _ => "<=",
    };
    format!("if {letter}{} {op} {operand}", instruction.target())
}

/// The name of a helper (linux/bpf.h, enum bpf_func_id).
fn helper(number: i32) -> String {
    let name = match number {
        1 => "bpf_map_lookup_elem",
        2 => "bpf_map_update_elem",
        5 => "bpf_ktime_get_ns",
        7 => "bpf_get_prandom_u32",
        8 => "bpf_get_smp_processor_id",
        26 => "bpf_skb_load_bytes",
        68 => "bpf_skb_load_bytes_relative",
        188 => "bpf_xdp_get_buff_len",
        189 => "bpf_xdp_load_bytes",
        _ => return format!("#{number}"),
    };
    format!("{name}#{number}")
}
