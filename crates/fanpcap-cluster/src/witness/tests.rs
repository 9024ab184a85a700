//! The ledger against a model that knows what became of every packet.

mod model;
mod named;
mod hostile;

use proptest::prelude::*;

use model::{Fate, Model, SECOND};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn spans_hold_the_truth_while_packets_come_and_are_exact_at_rest(
        seed in any::<u64>(),
        nodes in 1usize..5,
        loss in prop_oneof![Just(0u64), 1u64..300],
        fates in prop::collection::vec(Fate::any(), 0..6),
    ) {
        let mut model = Model::new(seed, nodes, true);
        model.lose(nodes - 1, if nodes > 1 { loss } else { 0 });
        for fate in fates {
            model.run(2 * SECOND, true);
            model.meet(fate);
            model.check();
        }
        model.run(3 * SECOND, true);
        model.check();
        model.run(6 * SECOND, false);
        model.check();
        let total = model.ledger.account().total;
        prop_assert!(total.lost.is_exact(), "{total:?}");
        prop_assert_eq!(total.lost.least, model.lost());
    }

    #[test]
    fn without_an_analyzer_doubles_and_a_dead_nodes_last_packets_are_spans(
        seed in any::<u64>(),
        nodes in 2usize..5,
        fates in prop::collection::vec(Fate::any(), 0..6),
    ) {
        let mut model = Model::new(seed, nodes, false);
        for fate in fates {
            model.run(2 * SECOND, true);
            model.meet(fate);
            model.check();
        }
        model.run(6 * SECOND, false);
        model.check();
        let account = model.ledger.account();
        let total = account.total;
        prop_assert!(total.offered.is_exact());
        prop_assert!(total.doubles.least <= model.doubles() && model.doubles() <= total.doubles.most);
        if model.is_plain() {
            prop_assert_eq!(total.lost.least, model.lost());
            prop_assert!(total.lost.is_exact());
        }
    }
}
