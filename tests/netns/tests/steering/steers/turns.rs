//! Steering that does not depend on the packet's content: in turn, by number, at random.

use anyhow::{Result, ensure};

use super::{MANY, MEMBERS, PORTS, arrives, packet4};
use crate::frame::Frame;
use crate::scene::on_scene;

#[test]
#[ignore = "needs root: run by make test"]
fn round_robin_goes_in_turn_on_each_cpu() -> Result<()> {
    let frames: Vec<Frame> = (0..MANY).map(|n| arrives(packet4(n, 1, PORTS))).collect();
    on_scene(1, |scene| {
        let outcome = scene.share_on_one_cpu("ip >-> steer_rrobin", MEMBERS, &frames)?;
        outcome.ensure_all_came()?;
        let owners: Vec<usize> = outcome.owners.iter().flatten().copied().collect();
        let in_turn = owners
            .windows(2)
            .all(|pair| pair[1] == (pair[0] + 1) % MEMBERS);
        ensure!(in_turn, "{owners:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_number_is_a_member_modulo_members() -> Result<()> {
    let frames: Vec<Frame> = (0..MANY).map(|n| arrives(packet4(n, 1, PORTS))).collect();
    on_scene(1, |scene| {
        for (program, member) in [
            ("steer_to 0", 0),
            ("main = steer_to 3", 3),
            ("steer_to 6", 2),
            ("steer_to 2147483647", 3),
        ] {
            let outcome = scene.share(program, MEMBERS, &frames)?;
            let right = outcome.owners.iter().all(|owner| *owner == Some(member));
            ensure!(right, "{program}: {:?}", outcome.shares());
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn at_random_all_get_about_the_same() -> Result<()> {
    let frames: Vec<Frame> = (0..8000_u16)
        .map(|number| {
            let ports = (1000 + number, 80);
            arrives(packet4(1, 1, ports))
        })
        .collect();
    on_scene(1, |scene| {
        let outcome = scene.share("steer_rnd", MEMBERS, &frames)?;
        outcome.ensure_all_came()?;
        // Binomial: the expected value is 2000, σ = √(8000 · ¼ · ¾) = 38.7. By chance, one run in
        // 400 000 gives a share beyond 5 σ.
        let fair = 2000 - 194..=2000 + 194;
        let shares = outcome.shares();
        ensure!(
            shares.iter().all(|share| fair.contains(share)),
            "{shares:?}"
        );
        // Exactly equal shares would mean that frames are dealt out in turn. By chance they occur
        // in one run of a million.
        ensure!(shares.iter().any(|&share| share != 2000), "{shares:?}");
        Ok(())
    })
}
