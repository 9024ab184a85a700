//! Tests that merge files with wrong bytes in them.

use super::*;

/// Unlikely lengths, counts and magic numbers.
const ODD: [u32; 8] = [
    0,
    1,
    3,
    4,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffc,
    0xffff_ffff,
];

/// Bytes and numbers that overwrite parts of a file, each with its place.
fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, Vec<u8>)>> {
    let byte = any::<u8>().prop_map(|byte| vec![byte]);
    let number = (prop::sample::select(ODD.to_vec()), any::<bool>());
    let number = number.prop_map(|(number, big)| match big {
        true => number.to_be_bytes().to_vec(),
        false => number.to_le_bytes().to_vec(),
    });
    let bytes = prop_oneof![byte, number];
    prop::collection::vec((any::<prop::sample::Index>(), bytes), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Either the merge succeeds and has every packet of the undamaged file, or its error names the
    /// damaged file.
    #[test]
    fn a_damaged_file_is_merged_as_far_as_it_goes_or_named(kind in kind(), damage in damage()) {
        let packets: Packets = (1..9).map(|number| (number * 1000, vec![7; 30])).collect();
        let mut bytes = kind.write(&packets);
        for (place, new) in damage {
            // Fields are at multiples of four.
            let place = place.index(bytes.len()) & !3;
            for (old, new) in bytes.iter_mut().skip(place).zip(new) {
                *old = new;
            }
        }
        let scratch = Scratch::new().unwrap();
        let whole = PCAP.write(&packets);
        match merged(&scratch, &[whole, bytes], "all.pcapng") {
            Ok(result) => prop_assert_eq!(result.parts[0].packets, 8),
            Err(error) => prop_assert!(format!("{error:#}").contains("source"), "{error:#}"),
        }
    }
}
