//! Applications on the XDP engine leave nothing behind.

use anyhow::Result;
use fanpcap_netns::on_wire;
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_testkit::traffic;

use crate::scene::start;

#[test]
#[ignore = "needs root: run by make test"]
fn nothing_is_left_of_those_that_are_killed() -> Result<()> {
    on_wire(1, |wire| {
        for count in 1..=3 {
            leaves_nothing(|| {
                let members = (0..count).map(|_| start(wire));
                let members = members.collect::<Result<Vec<_>>>()?;
                wire.send_as_tap(&traffic::frames(1, &traffic::flows(1, 5), 0..100)?)?;
                members.iter().try_for_each(|it| it.signal("KILL"))?;
                members.into_iter().try_for_each(|it| it.wait().map(drop))
            })?;
        }
        Ok(())
    })
}
