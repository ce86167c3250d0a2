//! What is dropped is gone: tasks and memory return to where they were.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use cap::Cap;
use thetis::DataSource;
use thetis_tests::block_on;
use tokio::time::timeout;

#[global_allocator]
static ALLOCATED: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Far longer than anything here may take: a test that reaches it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Runs one of everything, and drops it in the middle.
async fn use_it(engine: &DataSource) {
    let connection = engine.connect();
    for sql in ["SELECT id FROM flood", "SELECT COUNT(*) FROM slow GROUP BY id", "SELECT x FROM t"] {
        let mut changes = connection.statement().subscribe(sql).await.unwrap();
        changes.next_event().await.unwrap();
        let mut statement = connection.statement();
        if let Ok(mut rows) = statement.query("SELECT id FROM flood").await {
            rows.next_row().await.unwrap();
        }
    }
    for sql in [
        "CREATE MATERIALIZED VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x",
        "INSERT INTO t SELECT id FROM many WHERE id <= 1000",
        "DELETE FROM t WHERE x > 5",
        "DROP MATERIALIZED VIEW v",
    ] {
        connection.statement().execute(sql).await.unwrap();
    }
}

#[test]
fn drops_leave_no_task_and_no_memory() {
    block_on(async {
        let engine = DataSource::embedded().unwrap();
        for sql in [
            "CREATE STREAM slow (id BIGINT) WITH (connector = 'generator', rows_per_second = 100)",
            "CREATE STREAM flood (id BIGINT) WITH (connector = 'generator', column.id = 'sequence(1)')",
            "CREATE STREAM many (id BIGINT) WITH (connector = 'generator', rows = 10000, column.id = 'sequence(1)')",
            "CREATE TABLE t (x BIGINT)",
            "INSERT INTO t VALUES (1), (2), (3), (4), (5)",
        ] {
            engine.connect().statement().execute(sql).await.unwrap();
        }
        let mut tasks = Vec::new();
        let mut memory = Vec::new();
        for _ in 0..12 {
            use_it(&engine).await;
            let quiet = async {
                while engine.tasks() > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(HANGS, quiet).await.unwrap_or_else(|_| panic!("{} tasks are left", engine.tasks()));
            tasks.push(engine.tasks());
            memory.push(ALLOCATED.allocated());
        }
        // The first rounds fill caches and thread pools; after that nothing grows by a table or a frame.
        let (early, late) = (memory[3..7].iter().min().unwrap(), memory[8..].iter().min().unwrap());
        assert!(*late < early + 256 * 1024, "{memory:?}");
    });
}
