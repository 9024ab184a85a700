//! pcap_setfilter() on handles without a steering program.

use super::fake::{Fake, World};
use fanpcap::activate::activate;
use fanpcap::filter::set_filter;
use fanpcap::handle::{ERROR, System};

#[test]
fn the_reader_learns_whether_the_kernel_runs_the_filter_on_all_devices() {
    for in_kernel in [true, false] {
        let world = World::default();
        let p = world.open_several("fx0^fx1", "");
        assert_eq!(activate(p), 0);
        p.after(1)
            .change(|state| state.has_kernel_filter = in_kernel);
        let mut taken = None;
        assert_eq!(
            set_filter(p, &[], |_| 0, |in_kernel| taken = Some(in_kernel)),
            0
        );
        assert_eq!(taken, Some(in_kernel.then_some(1)));
    }
}

#[test]
fn a_filter_that_the_systems_library_refuses_is_not_the_readers() {
    let world = World::default();
    let p = world.open_several("fx0^fx1", "");
    assert_eq!(activate(p), 0);
    let set = |part: Fake<'_>| {
        if part == p {
            0
        } else {
            part.fail("bad filter")
        }
    };
    let status = set_filter(p, &[], set, |_| unreachable!("it was refused"));
    assert_eq!((status, p.error().as_str()), (ERROR, "fx1: bad filter"));
}
