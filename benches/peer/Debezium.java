// Debezium's embedded engine with its outbox router, to nothing: counts what comes out, and says how fast it came.
//
// Started by the benchmark `peer` as one source file: java -cp 'JARS/*' Debezium.java PORT SLOT ROWS

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import org.apache.kafka.connect.source.SourceRecord;

public class Debezium {
    /** What a run may take. A rate that is so slow is none. */
    private static final long SECONDS_MAX = 300;

    private final long rows;
    private final CountDownLatch all = new CountDownLatch(1);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private long count;
    private long firstAt;
    private long lastAt;

    private Debezium(long rows) {
        this.rows = rows;
    }

    private void take(java.util.List<RecordChangeEvent<SourceRecord>> records,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) throws InterruptedException {
        if (count == 0) {
            firstAt = System.nanoTime();
        }
        for (RecordChangeEvent<SourceRecord> record : records) {
            // The router gives its topic the aggregate's type.
            if (record.record().topic().startsWith("outbox.event.")) {
                count++;
            }
            committer.markProcessed(record);
        }
        committer.markBatchFinished();
        if (count >= rows) {
            lastAt = System.nanoTime();
            all.countDown();
        }
    }

    private static Properties properties(String port, String slot) {
        Properties properties = new Properties();
        String[][] settings = {
            {"name", "peer"},
            {"connector.class", "io.debezium.connector.postgresql.PostgresConnector"},
            {"offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"},
            {"offset.flush.interval.ms", "1000"},
            {"database.hostname", "127.0.0.1"},
            {"database.port", port},
            {"database.user", "postgres"},
            {"database.password", "none"},
            {"database.dbname", "postgres"},
            {"topic.prefix", "peer"},
            {"plugin.name", "pgoutput"},
            {"slot.name", slot},
            {"publication.name", "peer"},
            {"publication.autocreate.mode", "disabled"},
            {"snapshot.mode", "no_data"},
            {"table.include.list", "public.outboxevent"},
            {"tombstones.on.delete", "false"},
            // The fastest that the measurements of it name.
            {"poll.interval.ms", "10"},
            {"max.batch.size", "8192"},
            {"max.queue.size", "16384"},
            {"transforms", "outbox"},
            {"transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"},
        };
        for (String[] setting : settings) {
            properties.setProperty(setting[0], setting[1]);
        }
        return properties;
    }

    private void run(String port, String slot) throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(io.debezium.engine.format.ChangeEventFormat.of(Connect.class))
                        .using(properties(port, slot))
                        .using((success, message, error) -> {
                            failure.set(error == null ? new IllegalStateException(message) : error);
                            all.countDown();
                        })
                        .notifying(this::take)
                        .build()) {
            thread.execute(engine);
            if (!all.await(SECONDS_MAX, TimeUnit.SECONDS)) {
                throw new IllegalStateException("only " + count + " of " + rows + " events came");
            }
            if (count < rows) {
                throw new IllegalStateException("it ended early", failure.get());
            }
        } finally {
            thread.shutdownNow();
        }
    }

    private static long peakKib() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        return 0;
    }

    public static void main(String[] arguments) throws Exception {
        long begunAt = System.nanoTime();
        Debezium peer = new Debezium(Long.parseLong(arguments[2]));
        peer.run(arguments[0], arguments[1]);
        // From the first batch on: neither the start of Java nor that of the engine counts.
        double seconds = (peer.lastAt - peer.firstAt) / 1e9;
        double whole = (peer.lastAt - begunAt) / 1e9;
        double cpu = ProcessHandle.current().info().totalCpuDuration().map(it -> it.toNanos() / 1e9).orElse(0.0);
        System.out.printf("{\"rows\": %d, \"per_s\": %.1f, \"seconds_with_start\": %.3f, \"cpu_seconds\": %.2f, \"peak_kib\": %d}%n",
                peer.count, peer.count / seconds, whole, cpu, peakKib());
        System.exit(0);
    }
}
