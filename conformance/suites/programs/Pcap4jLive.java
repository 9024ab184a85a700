/* Captures and sends with pcap4j on a device with constant traffic. Prints TAP. */
import java.io.EOFException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.pcap4j.core.BpfProgram.BpfCompileMode;
import org.pcap4j.core.NotOpenException;
import org.pcap4j.core.PacketListener;
import org.pcap4j.core.PcapDumper;
import org.pcap4j.core.PcapHandle;
import org.pcap4j.core.PcapHandle.BlockingMode;
import org.pcap4j.core.PcapNativeException;
import org.pcap4j.core.PcapNetworkInterface;
import org.pcap4j.core.PcapNetworkInterface.PromiscuousMode;
import org.pcap4j.core.PcapStat;
import org.pcap4j.core.Pcaps;
import org.pcap4j.packet.EthernetPacket;
import org.pcap4j.packet.IpV6Packet;
import org.pcap4j.packet.Packet;
import org.pcap4j.packet.TcpPacket;
import org.pcap4j.packet.namednumber.DataLinkType;

public final class Pcap4jLive {
  private interface Check {
    void run() throws Exception;
  }

  private static String device;
  private static int number;

  public static void main(String[] arguments) {
    device = arguments[0];
    check("version", Pcap4jLive::version);
    check("devices", Pcap4jLive::devices);
    check("properties", Pcap4jLive::properties);
    check("next", Pcap4jLive::next);
    check("next or an exception", Pcap4jLive::nextEx);
    check("loop", Pcap4jLive::loop);
    check("dispatch", Pcap4jLive::dispatch);
    check("filter", Pcap4jLive::filter);
    check("wrong filter", Pcap4jLive::wrongFilter);
    check("loop broken by another thread", Pcap4jLive::brokenLoop);
    check("not blocking", Pcap4jLive::nonBlocking);
    check("statistics", Pcap4jLive::statistics);
    check("built handle", Pcap4jLive::builtHandle);
    check("sent", Pcap4jLive::sent);
    check("dumped", Pcap4jLive::dumped);
    check("missing device", Pcap4jLive::missingDevice);
    System.out.println("1.." + number);
  }

  private static void check(String name, Check check) {
    number++;
    try {
      check.run();
      System.out.println("ok " + number + " - " + name);
    } catch (Exception | Error error) {
      System.out.println("# " + name + ": " + error);
      System.out.println("not ok " + number + " - " + name);
    }
  }

  private static void require(boolean condition, Object found) {
    if (!condition) {
      throw new AssertionError(String.valueOf(found));
    }
  }

  private static PcapHandle open() throws PcapNativeException {
    PcapNetworkInterface nif = Pcaps.getDevByName(device);
    return nif.openLive(65536, PromiscuousMode.PROMISCUOUS, 100);
  }

  private static void version() {
    require(Pcaps.libVersion().startsWith("libpcap version "), Pcaps.libVersion());
  }

  private static void devices() throws PcapNativeException {
    List<PcapNetworkInterface> all = Pcaps.findAllDevs();
    require(all.stream().anyMatch(nif -> nif.getName().equals(device)), all);
  }

  private static void properties() throws Exception {
    try (PcapHandle handle = open()) {
      require(handle.getDlt() == DataLinkType.EN10MB, handle.getDlt());
      require(handle.getSnapshot() == 65536, handle.getSnapshot());
      require(!handle.listDatalinks().isEmpty(), "no link types");
    }
  }

  private static void next() throws Exception {
    try (PcapHandle handle = open()) {
      int got = 0;
      for (int tries = 0; tries < 1000 && got < 50; tries++) {
        Packet packet = handle.getNextPacket();
        got += packet instanceof EthernetPacket ? 1 : 0;
      }
      require(got == 50, got);
    }
  }

  private static void nextEx() throws Exception {
    try (PcapHandle handle = open()) {
      for (int got = 0; got < 50; ) {
        try {
          require(handle.getNextPacketEx().length() > 0, "an empty packet");
          require(handle.getTimestamp() != null, "no timestamp");
          got++;
        } catch (TimeoutException nothingYet) {
          continue;
        }
      }
    }
  }

  private static void loop() throws Exception {
    try (PcapHandle handle = open()) {
      List<Packet> got = new ArrayList<>();
      handle.loop(50, (PacketListener) got::add);
      require(got.size() == 50, got.size());
    }
  }

  private static void dispatch() throws Exception {
    try (PcapHandle handle = open()) {
      List<Packet> got = new ArrayList<>();
      while (got.isEmpty()) {
        int count = handle.dispatch(-1, (PacketListener) got::add);
        require(count == got.size(), count + " of " + got.size());
      }
    }
  }

  private static void filter() throws Exception {
    try (PcapHandle handle = open()) {
      handle.setFilter("ip6 and tcp", BpfCompileMode.OPTIMIZE);
      List<Packet> got = new ArrayList<>();
      handle.loop(20, (PacketListener) got::add);
      for (Packet packet : got) {
        require(packet.contains(IpV6Packet.class) && packet.contains(TcpPacket.class), packet);
      }
    }
  }

  private static void wrongFilter() throws Exception {
    try (PcapHandle handle = open()) {
      handle.setFilter("no such word", BpfCompileMode.OPTIMIZE);
    } catch (PcapNativeException expected) {
      return;
    }
    throw new AssertionError("a wrong filter was accepted");
  }

  private static void brokenLoop() throws Exception {
    try (PcapHandle handle = open()) {
      Thread breaker =
          new Thread(
              () -> {
                try {
                  TimeUnit.MILLISECONDS.sleep(300);
                  handle.breakLoop();
                } catch (InterruptedException | NotOpenException error) {
                  throw new IllegalStateException(error);
                }
              });
      breaker.start();
      try {
        handle.loop(-1, (PacketListener) packet -> {});
      } catch (InterruptedException expected) {
        breaker.join();
        return;
      }
      throw new AssertionError("the loop ended without InterruptedException");
    }
  }

  private static void nonBlocking() throws Exception {
    try (PcapHandle handle = open()) {
      handle.setFilter("ip proto 253", BpfCompileMode.OPTIMIZE);
      handle.setBlockingMode(BlockingMode.NONBLOCKING);
      require(handle.getBlockingMode() == BlockingMode.NONBLOCKING, handle.getBlockingMode());
      int count = handle.dispatch(-1, (PacketListener) packet -> {});
      require(count == 0, count);
    }
  }

  private static void statistics() throws Exception {
    try (PcapHandle handle = open()) {
      handle.loop(50, (PacketListener) packet -> {});
      PcapStat stat = handle.getStats();
      require(stat.getNumPacketsReceived() >= 50, stat.getNumPacketsReceived());
      require(stat.getNumPacketsDroppedByIf() == 0, stat.getNumPacketsDroppedByIf());
    }
  }

  private static void builtHandle() throws Exception {
    PcapHandle.Builder builder = new PcapHandle.Builder(device);
    builder.snaplen(60).timeoutMillis(50).bufferSize(1 << 20).immediateMode(true);
    try (PcapHandle handle = builder.build()) {
      List<byte[]> got = new ArrayList<>();
      handle.loop(20, (org.pcap4j.core.RawPacketListener) got::add);
      for (byte[] bytes : got) {
        require(bytes.length <= 60, bytes.length);
      }
    }
  }

  private static void sent() throws Exception {
    byte[] frame = new byte[64];
    byte[] header = {2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11, (byte) 0x88, (byte) 0xb5};
    System.arraycopy(header, 0, frame, 0, header.length);
    try (PcapHandle receiver = open(); PcapHandle sender = open()) {
      receiver.setFilter("ether proto 0x88b5", BpfCompileMode.OPTIMIZE);
      sender.sendPacket(frame);
      List<byte[]> got = new ArrayList<>();
      receiver.loop(1, (org.pcap4j.core.RawPacketListener) got::add);
      require(Arrays.equals(got.get(0), frame), got);
    }
  }

  private static void dumped() throws Exception {
    Path file = Files.createTempFile("some", ".pcap");
    try (PcapHandle handle = open()) {
      try (PcapDumper dumper = handle.dumpOpen(file.toString())) {
        handle.loop(30, (PacketListener) packet -> dump(dumper, packet));
      }
      int got = 0;
      try (PcapHandle reader = Pcaps.openOffline(file.toString())) {
        while (true) {
          reader.getNextPacketEx();
          got++;
        }
      } catch (EOFException end) {
        require(got == 30, got);
      }
    } finally {
      Files.delete(file);
    }
  }

  private static void dump(PcapDumper dumper, Packet packet) {
    try {
      dumper.dump(packet);
    } catch (NotOpenException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void missingDevice() throws Exception {
    PcapHandle.Builder builder = new PcapHandle.Builder("nosuch0");
    try (PcapHandle handle = builder.build()) {
      throw new AssertionError("a device that does not exist was opened");
    } catch (PcapNativeException expected) {
      return;
    }
  }
}
