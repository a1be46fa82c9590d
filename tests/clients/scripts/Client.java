import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** Sends one request several times with the JDK's HttpClient, and prints the answers.
 *
 * <p>Arguments: URL KEY FRAMING PADDING TIMES BODY; PADDING: a number of spaces after the body. The
 * property `version` is HTTP_1_1 or HTTP_2. Each answer is printed as a line with "= " and the
 * status or the exception, then the lines of its body.
 */
public class Client {
    public static void main(String[] args) throws InterruptedException {
        var body = (args[5] + " ".repeat(Integer.parseInt(args[3]))).getBytes(StandardCharsets.UTF_8);
        var client = HttpClient.newBuilder().version(HttpClient.Version.valueOf(System.getProperty("version"))).build();
        for (int n = Integer.parseInt(args[4]); n > 0; n--) {
            var request = HttpRequest.newBuilder(URI.create(args[0]))
                .timeout(Duration.ofSeconds(10))
                .header("Content-Type", "application/json")
                .header("Authorization", "Bearer " + args[1]);
            switch (args[2]) {
                case "none" -> request.GET();
                case "length" -> request.POST(BodyPublishers.ofByteArray(body));
                case "chunked" -> request.POST(
                    BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body)));
                default -> throw new IllegalArgumentException(args[2]);
            }
            try {
                var response = client.send(request.build(), BodyHandlers.ofLines());
                System.out.println("= " + response.statusCode());
                response.body().forEach(System.out::println);
            } catch (IOException err) {
                System.out.println("= " + err);
            }
        }
    }
}
