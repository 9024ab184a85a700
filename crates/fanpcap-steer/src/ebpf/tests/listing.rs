//! Checks the listing of the code.

use super::*;

#[test]
fn each_instruction_is_shown_in_the_kernels_notation() {
    let counted = Function::Sequence(vec![flow_mode(), Function::Count(2, -1)]);
    let object = fanout_of(&program(counted)).unwrap();
    let listing = object.listing();
    for line in [
        "    0: r6 = r1",
        ": call bpf_skb_load_bytes_relative#68",
        ": if r1 != 69 goto pc+",
        ": r1 = be32 r1",
        ": r5 = 0x9e3779b97f4a7c15",
        ": lock *(u64 *)(r1 +0) += r2",
        ": w0 = w8",
        ": call pc+",
        ": exit",
        "; walk: the packet",
    ] {
        assert!(listing.contains(line), "{line} in\n{listing}");
    }
    let last = listing.lines().rev().find(|line| !line.starts_with(';'));
    let number = last.and_then(|line| line.split(':').next()?.trim().parse().ok());
    assert_eq!(number, Some(object.instructions.len() - 1));
}
