//! Random sequences of operations and crashes, compared with a model.
//!
//! Invariants: no two owners share an address, no address leaks, and an owner has an address from
//! every set or from none.

use std::collections::BTreeMap;

use proptest::prelude::{Just, ProptestConfig, Strategy as _, any, prop, prop_oneof, proptest};

use super::*;

const OWNERS: u8 = 8;

#[derive(Clone, Debug)]
enum Operation {
    StoredLease {
        owner: u8,
        strategy: u8,
        crash: Option<u32>,
    },
    Release {
        owner: u8,
        crash: Option<u32>,
    },
    Gc {
        live: u8,
        crash: Option<u32>,
    },
    Reboot,
    HostLocalLease {
        owner: u8,
        address: u8,
    },
    HostLocalRelease {
        owner: u8,
    },
}

fn any_operation() -> impl proptest::strategy::Strategy<Value = Operation> {
    let crash = || prop_oneof![3 => Just(None), 1 => (0..12_u32).prop_map(Some)];
    prop_oneof![
        6 => (0..OWNERS, 0..3_u8, crash())
            .prop_map(|(owner, strategy, crash)| Operation::StoredLease { owner, strategy, crash }),
        4 => (0..OWNERS, crash()).prop_map(|(owner, crash)| Operation::Release { owner, crash }),
        1 => (any::<u8>(), crash()).prop_map(|(live, crash)| Operation::Gc { live, crash }),
        1 => Just(Operation::Reboot),
        1 => (0..OWNERS, 2..7_u8)
            .prop_map(|(owner, address)| Operation::HostLocalLease { owner, address }),
        1 => (0..OWNERS).prop_map(|owner| Operation::HostLocalRelease { owner }),
    ]
}

fn name(number: u8) -> String {
    format!("c{number}")
}

/// A tmpfs makes thousands of sequences fast.
fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap()
}

/// The addresses that each owner has.
type Model = BTreeMap<u8, Vec<IpAddr>>;

struct ModeledStore {
    directory: TempDir,
    sets: [RangeSet; 2],
    model: Model,
    /// Owners whose last call crashed have one of these numbers of addresses, or none.
    uncertain: BTreeMap<u8, Vec<usize>>,
}

impl ModeledStore {
    fn new() -> Self {
        Self {
            directory: in_memory(),
            sets: [set("10.1.0.0/29"), set("fd00::/125")],
            model: Model::new(),
            uncertain: BTreeMap::new(),
        }
    }

    fn open(&self) -> Result<LockedStore, StoreError> {
        store(&self.directory).open()
    }

    fn locked(&self) -> LockedStore {
        self.open().unwrap()
    }

    fn net(&self) -> PathBuf {
        self.directory.path().join("net")
    }

    fn apply(&mut self, step: &Operation) {
        match step {
            Operation::StoredLease {
                owner,
                strategy,
                crash,
            } => self.lease(*owner, *strategy, *crash),
            Operation::Release { owner, crash } => {
                let outcome = crashing(*crash, || {
                    self.open()?.release(&super::owner(&name(*owner)))
                });
                self.forget(*owner, outcome.is_ok());
            }
            Operation::Gc { live, crash } => {
                let lives = |number: u8| live & (1 << number) != 0;
                let is_live =
                    |o: &LeaseOwner| (0..OWNERS).any(|n| o.container() == name(n) && lives(n));
                let outcome = crashing(*crash, || self.open()?.release_orphans(&is_live));
                for number in (0..OWNERS).filter(|number| !lives(*number)) {
                    self.forget(number, outcome.is_ok());
                }
            }
            Operation::Reboot => {
                self.locked();
                reboot(&self.directory);
                self.model.clear();
                self.uncertain.clear();
            }
            Operation::HostLocalLease { owner, address } => self.host_local_lease(*owner, *address),
            Operation::HostLocalRelease { owner } => {
                let key = format!("{}\r\neth0", name(*owner));
                for entry in fs::read_dir(self.net()).into_iter().flatten().flatten() {
                    if fs::read_to_string(entry.path()).is_ok_and(|text| text == key) {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
                self.forget(*owner, true);
            }
        }
    }

    fn lease(&mut self, owner: u8, strategy: u8, crash: Option<u32>) {
        let strategy = [
            AllocationStrategy::Sequential,
            AllocationStrategy::Random,
            AllocationStrategy::DensePack,
        ][usize::from(strategy)];
        let outcome = crashing(crash, || {
            self.open()?.lease(&LeaseRequest {
                owner: &super::owner(&name(owner)),
                pod: None,
                sets: &self.sets,
                requested: &[],
                strategy,
            })
        });
        match outcome {
            Ok(given) => {
                assert!(
                    !self.model.contains_key(&owner),
                    "a second lease for {owner}"
                );
                let given: Vec<IpAddr> = given.into_iter().map(|(address, _)| address).collect();
                for (other, theirs) in &self.model {
                    assert!(
                        given.iter().all(|address| !theirs.contains(address)),
                        "{given:?} belongs to {other}"
                    );
                }
                self.model.insert(owner, given);
                self.uncertain.remove(&owner);
            }
            Err(StoreError::Io { .. }) => {
                if !self.model.contains_key(&owner) {
                    self.uncertain
                        .entry(owner)
                        .or_default()
                        .push(self.sets.len());
                }
            }
            Err(StoreError::AlreadyLeased { .. }) => {
                assert!(self.model.contains_key(&owner) || self.uncertain.contains_key(&owner));
            }
            Err(StoreError::Exhausted { .. }) => {
                let taken = self.locked().usage(&self.sets[0]).unwrap();
                let other = self.locked().usage(&self.sets[1]).unwrap();
                assert!(taken.leased == taken.capacity || other.leased == other.capacity);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn host_local_lease(&mut self, owner: u8, address: u8) {
        if self.model.contains_key(&owner) || self.uncertain.contains_key(&owner) {
            return;
        }
        let address = ip(&format!("10.1.0.{address}"));
        fs::create_dir_all(self.net()).unwrap();
        let Ok(mut file) = File::create_new(self.net().join(address.to_string())) else {
            return;
        };
        file.write_all(format!("{}\r\neth0", name(owner)).as_bytes())
            .unwrap();
        self.model.insert(owner, vec![address]);
    }

    fn forget(&mut self, owner: u8, is_certain: bool) {
        let had = self.model.remove(&owner);
        if is_certain {
            self.uncertain.remove(&owner);
        } else if let Some(had) = had {
            self.uncertain.insert(owner, vec![had.len()]);
        }
    }

    fn compare(&self) {
        let leases = self.locked().leases().unwrap();
        let of = |number: u8| {
            leases
                .iter()
                .find(|lease| lease.owner == owner(&name(number)))
        };
        for number in 0..OWNERS {
            let has = of(number)
                .map(|lease| lease.addresses.clone())
                .unwrap_or_default();
            match self.model.get(&number) {
                Some(expected) => assert_eq!(&has, expected, "owner {number}"),
                None if self.uncertain.contains_key(&number) => {
                    let whole = &self.uncertain[&number];
                    assert!(
                        has.is_empty() || whole.contains(&has.len()),
                        "{number} has {has:?}"
                    );
                }
                None => assert!(
                    has.is_empty(),
                    "{number} has {has:?} and should have nothing"
                ),
            }
        }
        let mut all: Vec<IpAddr> = leases.iter().flat_map(|l| l.addresses.clone()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "an address has two owners");
    }

    /// Without owners, every address can be leased again.
    fn assert_no_leak(&self) {
        self.locked().release_orphans(&|_| false).unwrap();
        for number in 0..5 {
            lease(
                &mut self.locked(),
                &format!("last{number}"),
                &self.sets,
                &[],
            )
            .unwrap();
        }
    }
}

fn crashing<T>(
    crash: Option<u32>,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    fault_injection::crash_after(crash);
    let outcome = work();
    fault_injection::crash_after(None);
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_shared_or_leaked_and_no_lease_is_partial(
        steps in prop::collection::vec(any_operation(), 1..25),
    ) {
        let mut store = ModeledStore::new();
        for step in &steps {
            store.apply(step);
            store.compare();
        }
        store.assert_no_leak();
    }
}
