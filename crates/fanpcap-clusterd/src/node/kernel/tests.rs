//! Tests of the marks that tables get while topology updates arrive in the mirrored stream.

use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Attached, Hook, LoadedProgram};
use fanpcap_linux::netlink::link;
use fanpcap_ring::PoolWords;
use fanpcap_select::in_line::{InLine, Kind};
use fanpcap_select::{Claim, Classic, Filter, Selection};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Veth, netns};

use super::*;

const CLUSTER: u32 = 7;

/// Takes devices over. If another test has just forked a process, the child has copies of the
/// devices' locks until it calls `exec`. So a device may stay locked for a moment after its
/// `Kernel` was dropped.
fn take(devices: &[Device], action: Action) -> Result<Kernel> {
    await_for("the locks of devices", LIMIT, || {
        match Kernel::take(devices.to_vec(), CLUSTER, action) {
            Err(error) if format!("{error:#}").contains("another 'fanpcap node'") => Ok(None),
            taken => taken.map(Some),
        }
    })
}

fn assignment(revision: u64) -> Assignment {
    Assignment {
        revision: Revision(revision),
        epoch: 1,
        slot: None,
        selection: Selection::default(),
        claims: Claims::new(|_| Claim::Mine),
        target: None,
        analyzers: Vec::new(),
        filter: None,
    }
}

/// Runs the BPF program with an update that was announced.
fn update(kernel: &Kernel, sequence: u64) {
    let selector = kernel.selector().unwrap();
    let frame = InLine {
        kind: Kind::Update,
        cluster: CLUSTER,
        sequence,
        time_ns: 1,
        number: 77,
    };
    selector.announce(Kind::Update, sequence, 77);
    let before = selector.counts().causes.updates;
    let frame = frame.encode([0xff; 6], [2; 6]);
    selector.program().run(&frame, &[], 1).unwrap();
    assert_eq!(selector.counts().causes.updates, before + 1);
}

fn mark(kernel: &Kernel) -> u32 {
    kernel.selector().unwrap().control().mark()
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_mark_is_given_once() {
    netns::within_new(|| {
        let veth = Veth::new("near", "far", 1)?;
        let device = Device::find(veth.far)?;
        let mut kernel = take(&[device], Action::PassToNext)?;
        let target = Claims::none();
        let first = kernel
            .prepare(&assignment(1), &target)?
            .context("prepared")?;
        let before = mark(&kernel);
        // The update comes after `next_mark` has cancelled the prepared table.
        let drawn = kernel.next_mark();
        update(&kernel, 5);
        assert_ne!(mark(&kernel), drawn);
        assert_eq!(mark(&kernel), before, "taken back");
        kernel.load(&assignment(2))?;
        assert_eq!(kernel.revision(), Some(Revision(2)));
        // The update comes after the second table is prepared, and before the third table gets its
        // mark.
        let second = kernel
            .prepare(&assignment(3), &target)?
            .context("prepared")?;
        update(&kernel, 6);
        assert_eq!(mark(&kernel), second.mark);
        assert!(second.mark > first.mark);
        let third = kernel
            .prepare(&assignment(4), &target)?
            .context("prepared")?;
        assert!(third.mark > second.mark);
        assert_eq!(
            kernel.revision(),
            Some(Revision(3)),
            "until the next update"
        );
        update(&kernel, 7);
        assert_eq!(kernel.revision(), Some(Revision(4)));
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        Ok(())
    })
    .unwrap();
}

/// An assignment with a filter. The filter passes all packets, or no packet if `keep` is 0.
fn filtered(revision: u64, keep: u32) -> Assignment {
    let filter = Filter {
        text: keep.to_string(),
        code: vec![Classic::keep(keep)],
    };
    Assignment {
        filter: Some(filter),
        ..assignment(revision)
    }
}

/// Runs the BPF program with one packet. Returns the verdict, and how many packets the BPF program
/// has seen and filtered so far.
fn packet(kernel: &Kernel) -> (u32, [u64; 2]) {
    let selector = kernel.selector().unwrap();
    let run = selector.program().run(&[9; 60], &[], 1).unwrap();
    let counts = selector.counts();
    (
        run.verdict,
        [counts.seen.iter().sum(), counts.causes.filtered],
    )
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn counts_go_on_with_another_filter_and_another_agent() {
    netns::within_new(|| {
        let veth = Veth::new("near", "far", 1)?;
        let device = [Device::find(veth.far)?];
        let again = || take(&device, Action::PassToNext);
        let (dropped, pass) = (1, 2);
        let mut kernel = again()?;
        assert!(kernel.load(&assignment(1))?);
        assert_eq!(packet(&kernel), (pass, [1, 0]));
        assert!(!kernel.load(&filtered(2, 0))?, "the same selection");
        assert_eq!(packet(&kernel), (dropped, [2, 1]));
        let since = kernel.since();
        drop(kernel);
        let mut kernel = again()?;
        assert_eq!(kernel.revision(), Some(Revision(2)));
        assert_eq!(packet(&kernel), (dropped, [3, 2]));
        assert!(!kernel.load(&filtered(3, 9))?);
        assert_eq!(packet(&kernel), (pass, [4, 2]));
        assert!(!kernel.load(&assignment(4))?);
        assert_eq!(packet(&kernel), (pass, [5, 2]));
        assert_eq!(kernel.since(), since);
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        let mut ships = take(&device, ship()?)?;
        let refused = ships.load(&filtered(5, 9)).unwrap_err().to_string();
        assert!(refused.contains("not 'capture'"), "{refused}");
        Ok(())
    })
    .unwrap();
}

/// Makes two wires. Returns the two devices at which the node captures.
fn legs() -> Result<Vec<Device>> {
    let names = [("near", "far"), ("near2", "far2")];
    let device = |(near, far)| Device::find(Veth::new(near, far, 1)?.far);
    names.into_iter().map(device).collect()
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_filter_that_one_device_did_not_get_is_tried_again() {
    netns::within_new(|| {
        let mut kernel = take(&legs()?, Action::PassToNext)?;
        kernel.load(&assignment(1))?;
        // After `detach`, the link can't be updated.
        let link = kernel.devices[1].link.as_ref().context("a link")?;
        link.detach()?;
        for _ in 0..2 {
            kernel.load(&filtered(2, 0)).unwrap_err();
            assert_eq!(kernel.revision(), Some(Revision(1)));
            for it in &kernel.devices {
                let runs = it.link.as_ref().context("a link")?.program_id()?;
                let set = it.state.set.context("a set")?;
                assert_eq!(set.program, runs, "{}", it.device.name);
            }
        }
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        Ok(())
    })
    .unwrap();
}

/// Attaches the XDP program of another tool to this device.
fn foreign(device: &Device) -> Result<Attached> {
    let code = [Instruction::set(0, 2), Instruction::exit()];
    let other = LoadedProgram::load(ProgramKind::Xdp, "other_tool", &code)?;
    Ok(other.attach(device.ifindex, Hook::Driver)?)
}

/// The number of the BPF program that a device runs.
fn runs(device: &Device) -> Result<Option<u32>> {
    Ok(link::get(device.ifindex)?.xdp.map(|xdp| xdp.program))
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn no_device_has_a_selection_if_another_refuses_it() {
    netns::within_new(|| {
        let legs = legs()?;
        let mut kernel = take(&legs, Action::PassToNext)?;
        let other = foreign(&legs[1])?;
        for _ in 0..2 {
            let error = kernel.load(&assignment(1)).unwrap_err();
            assert_eq!(error.to_string(), "attaching the selection to far2");
            assert_eq!(runs(&legs[0])?, None);
        }
        other.detach()?;
        assert!(kernel.load(&assignment(1))?);
        for leg in &legs {
            assert!(runs(leg)?.is_some(), "{}", leg.name);
        }
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_device_goes_on_if_one_that_is_added_refuses_the_selection() {
    netns::within_new(|| {
        let legs = legs()?;
        let one = || take(&legs[..1], Action::PassToNext);
        let pass = 2;
        let mut kernel = one()?;
        kernel.load(&assignment(1))?;
        assert_eq!(packet(&kernel), (pass, [1, 0]));
        let before = runs(&legs[0])?;
        drop(kernel);
        let mut kernel = take(&legs, Action::PassToNext)?;
        let other = foreign(&legs[1])?;
        kernel.load(&assignment(2)).unwrap_err();
        drop(kernel);
        assert_eq!(runs(&legs[0])?, before);
        // After the failed load, an agent that has only the first device still finds the old
        // selection on this device.
        let mut kernel = one()?;
        assert_eq!(kernel.revision(), Some(Revision(1)));
        assert_eq!(packet(&kernel), (pass, [2, 0]));
        other.detach()?;
        let other = take(&legs[1..], Action::PassToNext)?;
        kernel.devices.extend(other.devices);
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        Ok(())
    })
    .unwrap();
}

fn ship() -> Result<Action> {
    let shape = fanpcap_xdp::pool_shape()?;
    Ok(Action::Ship { bytes: 80, shape })
}

/// Whether an agent would read records.
fn has_unread(kernel: &Kernel) -> Result<bool> {
    let selectors = kernel.selector().into_iter().chain(&kernel.left);
    let mut words = Vec::new();
    for pool in selectors.filter_map(Selector::pool) {
        words.push(pool.map_words()?);
    }
    ensure!(words.len() == kernel.pools()?.len());
    Ok(words.iter().any(PoolWords::has_unread))
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn what_a_device_captured_is_read_when_another_one_is_added() {
    netns::within_new(|| {
        let legs = legs()?;
        let mut kernel = take(&legs[1..], ship()?)?;
        kernel.load(&assignment(7))?;
        let before = mark(&kernel);
        packet(&kernel);
        drop(kernel);
        // Now the agent also takes the first device, which has no maps.
        let mut kernel = take(&legs, ship()?)?;
        assert!(kernel.selector().is_none());
        assert_eq!(kernel.marks().collect::<Vec<_>>(), [(before, Revision(7))]);
        assert!(has_unread(&kernel)?);
        kernel.load(&assignment(8))?;
        assert!(mark(&kernel) > before, "a mark of its own");
        assert!(!has_unread(&kernel)?, "another pool");
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        Ok(())
    })
    .unwrap();
}

#[test]
fn queues_that_share_counters_are_told() {
    let told = crowded("eth1", 63, 32).unwrap();
    assert!(told.starts_with("eth1 has 63 receive queues, and 31 of them share their counters"));
    assert!(told.contains("'ethtool -L eth1 combined 32'"), "{told}");
    assert_eq!(crowded("eth1", 32, 32), None);
    // On a bond, or with generic XDP, no queue has counters of its own, so fewer queues would
    // change nothing.
    assert_eq!(crowded("eth1", 0, 0), None);
    assert_eq!(crowded("eth1", 4, 0), None);
}
