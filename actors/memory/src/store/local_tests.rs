//! The store in this process, by its files.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    slice::from_ref,
};

use super::{
    conformance::{self, DIMENSIONS, memory, point},
    *,
};

#[tokio::test]
async fn the_local_store_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0_u8);
    let make = async || {
        number.set(number.get() + 1);
        let folder = folder.path().join(number.get().to_string());
        LocalStore::open(&folder, Some(("test", DIMENSIONS))).unwrap()
    };
    conformance::conforms(make).await.unwrap();
}

fn batch(after: u64, upto: u64, documents: Vec<Document>) -> DocumentBatch {
    DocumentBatch { after, upto, documents }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn events(store: &LocalStore, scope: &StoreScope, text: &str) -> Vec<u64> {
    let answer = store.search_now(from_ref(scope), &RecallQuery::new(text), 10).unwrap();
    assert!(answer.damaged.is_empty());
    answer.found.iter().map(|found| found.document.id.event).collect()
}

#[test]
fn a_store_that_is_opened_again_finds_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let search = |store: &LocalStore| {
        store.search_now(from_ref(&scope), &RecallQuery::new("house garden"), 10).unwrap()
    };
    let store = LocalStore::open(folder.path(), None).unwrap();
    let at =
        |event, position, text: &str| Document { position: Some(position), ..point(event, text) };
    let first = vec![at(1, 5, "a house"), at(2, 6, "a garden"), at(3, 4, "a secret house")];
    store.put_now(&scope, &batch(0, 3, first)).unwrap();
    store.mask_now(&scope, &[point(3, "").id]).unwrap();
    store.put_now(&scope, &batch(3, 6, vec![at(4, 7, "a gate"), at(6, 4, "a roof")])).unwrap();
    let expected = search(&store);
    assert_eq!(expected.found.len(), 4, "the neighbours, too");
    drop(store);
    let store = LocalStore::open(folder.path(), None).unwrap();
    assert_eq!(search(&store), expected);
    assert_eq!(store.upto_now(&scope).unwrap(), 6);
    store.put_now(&scope, &batch(0, 3, vec![at(3, 4, "a secret house")])).unwrap();
    assert_eq!(search(&store), expected, "what was masked is known");
}

#[test]
fn a_short_list_is_the_beginning_of_a_long_one() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    // Many have one score; the lower ids come at any time.
    let documents = (0..150_u64).map(|number| {
        let event = 1 + number * 61 % 150;
        let importance = u8::try_from(event % 3).unwrap() + 5;
        Document { importance, ..point(event, "a house") }
    });
    store.put_now(&scope, &batch(0, 150, documents.collect())).unwrap();
    let search = |k| store.search_now(from_ref(&scope), &RecallQuery::new("house"), k).unwrap();
    let all = search(200).found;
    let order = |found: &FoundDocument| (9 - found.document.importance, found.document.id);
    assert_eq!(all.len(), 150);
    assert!(all.is_sorted_by_key(order), "of the same score, the lower id is first");
    for k in 0..=all.len() {
        assert_eq!(search(k).found, all[..k], "{k}");
    }
}

#[test]
fn what_is_masked_replaced_or_dropped_is_gone_from_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let has = |text: &str| {
        let is_in = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        };
        files(folder.path()).iter().any(is_in)
    };
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    let documents = vec![point(1, "the code is 4711"), point(2, "the name is Ada")];
    store.put_now(&scope, &batch(0, 2, documents)).unwrap();
    assert!(has("4711") && has("Ada"));
    store.mask_now(&scope, &[point(1, "").id]).unwrap();
    assert!(!has("4711") && has("Ada"));
    assert_eq!(events(&store, &scope, "name"), [2], "the other one is read from its new place");
    store.put_now(&scope, &batch(2, 3, vec![point(2, "the name is Eve")])).unwrap();
    store.mask_now(&scope, &[point(9, "").id]).unwrap();
    assert!(!has("Ada") && has("Eve"));
    store.drop_now(&scope).unwrap();
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_mask_that_the_disk_refused_is_made_when_it_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    store.put_now(&scope, &batch(0, 1, vec![point(1, "the code is 4711")])).unwrap();
    let [path] = files(folder.path()).try_into().unwrap();
    let blocked = path.with_extension("new");
    fs::create_dir(&blocked).unwrap();
    let mask = || store.mask_now(&scope, &[point(1, "").id]);
    assert!(matches!(mask(), Err(MemoryStoreError::Io { .. })));
    assert_eq!(
        events(&store, &scope, "code"),
        Vec::<u64>::new(),
        "at once, whatever the disk does"
    );
    fs::remove_dir(&blocked).unwrap();
    mask().unwrap();
    assert!(!String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("4711"));
    let again = LocalStore::open(folder.path(), None).unwrap();
    assert_eq!(events(&again, &scope, "code"), Vec::<u64>::new());
}

#[test]
fn a_damaged_file_is_removed_and_reported_once_wherever_the_damage_is() {
    let scope = memory("a/all").unwrap();
    let documents: Vec<Document> =
        (1..=3).map(|event| point(event, &format!("house {event}"))).collect();
    let filled = |folder: &Path| {
        let store = LocalStore::open(folder, None).unwrap();
        for (at, document) in (0_u64..).zip(&documents) {
            store.put_now(&scope, &batch(at, at + 1, vec![document.clone()])).unwrap();
        }
        store
    };
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path()));
    let [path] = files(folder.path()).try_into().unwrap();
    let whole = fs::read(&path).unwrap();
    let (mut reported, mut shortened) = (0, 0);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        let store = LocalStore::open(folder.path(), None).unwrap();
        let search = || store.search_now(from_ref(&scope), &RecallQuery::new("house"), 10).unwrap();
        let answer = search();
        if answer.damaged.is_empty() {
            // A length that points behind the end looks like a record that was not wholly written.
            let upto = store.upto_now(&scope).unwrap();
            assert!(upto < 3, "byte {at}: it does not say that it lacks something");
            assert!(
                answer.found.iter().all(|found| documents.contains(&found.document)),
                "byte {at}"
            );
            shortened += 1;
        } else {
            assert_eq!(answer.damaged.as_slice(), from_ref(&scope), "byte {at}");
            assert!(answer.found.is_empty(), "byte {at}");
            assert_eq!(store.upto_now(&scope).unwrap(), 0);
            assert!(search().damaged.is_empty(), "once");
            reported += 1;
        }
        let upto = store.upto_now(&scope).unwrap();
        store.put_now(&scope, &batch(upto, 3, documents.clone())).unwrap();
        assert_eq!(events(&store, &scope, "house").len(), 3, "it is built again");
    }
    assert!(reported > shortened, "{reported} {shortened}");
}

#[test]
fn a_file_that_is_damaged_while_it_is_in_use_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (scope, other) = (memory("a/all").unwrap(), memory("b/all").unwrap());
    let store = LocalStore::open(folder.path(), None).unwrap();
    store.put_now(&scope, &batch(0, 1, vec![point(1, "an old house")])).unwrap();
    let [path] = files(folder.path()).try_into().unwrap();
    store.put_now(&other, &batch(0, 2, vec![point(2, "a new house")])).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(3).position(|window| window == b"old").unwrap();
    bytes[at] = b'c';
    fs::write(&path, bytes).unwrap();
    let scopes = [scope.clone(), other.clone()];
    let answer = store.search_now(&scopes, &RecallQuery::new("house"), 10).unwrap();
    assert_eq!(answer.damaged.as_slice(), from_ref(&scope));
    let found: Vec<u64> = answer.found.iter().map(|found| found.document.id.event).collect();
    assert_eq!(found, [2], "the other scope is as it was");
    assert_eq!(store.upto_now(&scope).unwrap(), 0);
}

/// Each search asks it first: it must not wait for those that are under way.
#[test]
fn how_far_a_scope_is_filled_is_known_while_it_is_searched() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    store.put_now(&scope, &batch(0, 4, vec![point(1, "a house")])).unwrap();
    let resident = store.shared.resident(&scope);
    let searched = resident.read();
    assert_eq!(store.upto_now(&scope).unwrap(), 4);
    drop(searched);
}

#[test]
fn a_write_that_was_cut_off_is_put_again() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    store.put_now(&scope, &batch(0, 1, vec![point(1, "a house")])).unwrap();
    let [path] = files(folder.path()).try_into().unwrap();
    let before = fs::metadata(&path).unwrap().len();
    store.put_now(&scope, &batch(1, 2, vec![point(2, "a wooden house")])).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in before..u64::try_from(whole.len()).unwrap() {
        fs::write(&path, &whole).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        let store = LocalStore::open(folder.path(), None).unwrap();
        assert_eq!(store.upto_now(&scope).unwrap(), 1, "{length}");
        store.put_now(&scope, &batch(1, 2, vec![point(2, "a wooden house")])).unwrap();
        assert_eq!(events(&store, &scope, "wooden"), [2]);
        assert_eq!(
            events(&LocalStore::open(folder.path(), None).unwrap(), &scope, "house").len(),
            2
        );
    }
}

#[test]
fn a_file_of_another_scope_or_version_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (scope, other) = (memory("a/all").unwrap(), memory("b/all").unwrap());
    let store = LocalStore::open(folder.path(), None).unwrap();
    store.put_now(&scope, &batch(0, 1, vec![point(1, "a house")])).unwrap();
    let [first] = files(folder.path()).try_into().unwrap();
    store.put_now(&other, &batch(0, 1, vec![point(1, "another house")])).unwrap();
    let second = files(folder.path()).into_iter().find(|file| *file != first).unwrap();
    fs::copy(&first, &second).unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    let scopes = [other.clone()];
    let answer = store.search_now(&scopes, &RecallQuery::new("house"), 10).unwrap();
    assert_eq!((answer.found.len(), answer.damaged), (0, vec![other]), "MEM-1");
}

#[test]
fn an_index_is_of_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let open = |model| LocalStore::open(folder.path(), model).unwrap();
    let with = |vector: Vec<f32>| Document { embedding: Some(vector), ..point(1, "a house") };
    open(Some(("m", 2))).put_now(&scope, &batch(0, 1, vec![with(vec![1.0, 0.0])])).unwrap();
    for model in [None, Some(("m", 3)), Some(("n", 2))] {
        assert_eq!(open(model).upto_now(&scope).unwrap(), 0, "{model:?} is built beside it");
    }
    let refused = open(None).put_now(&scope, &batch(0, 1, vec![with(vec![1.0, 0.0])]));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("2 numbers") && text.contains("have 0"), "{text}");
    assert_eq!(open(Some(("m", 2))).upto_now(&scope).unwrap(), 1);
}

#[test]
fn what_a_dead_process_left_half_written_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    store.put_now(&scope, &batch(0, 1, vec![point(1, "a house")])).unwrap();
    let [path] = files(folder.path()).try_into().unwrap();
    let mut left = fs::File::create(path.with_extension("new")).unwrap();
    left.write_all(b"the code is 4711").unwrap();
    drop(store);
    let store = LocalStore::open(folder.path(), None).unwrap();
    assert_eq!(files(folder.path()), [path]);
    assert_eq!(events(&store, &scope, "house"), [1]);
}

#[test]
fn scopes_that_were_left_out_of_memory_are_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    let scope = |number: u64| memory(&format!("shared/s{number}")).unwrap();
    for number in 1..=1_100 {
        store.put_now(&scope(number), &batch(0, 1, vec![point(number, "a house")])).unwrap();
    }
    for number in [1, 2, 1_100, 1] {
        assert_eq!(events(&store, &scope(number), "house"), [number]);
    }
}

#[test]
fn many_changes_of_one_document_neither_fill_the_file_nor_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let scope = memory("a/all").unwrap();
    let store = LocalStore::open(folder.path(), None).unwrap();
    let long = "house ".repeat(150);
    for event in 0..2_500_u64 {
        let changed = Document { at: clawnode_proto::Timestamp(event), ..point(1, &long) };
        store.put_now(&scope, &batch(event, event + 1, vec![changed])).unwrap();
    }
    let [path] = files(folder.path()).try_into().unwrap();
    assert!(fs::metadata(path).unwrap().len() < 3 << 20);
    let found = store.search_now(&[scope], &RecallQuery::new("house"), 10).unwrap().found;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].document.at.0, 2_499);
}
