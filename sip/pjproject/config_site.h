/* Limits and choices of the server build of pjsua2, copied to pjlib/include/pj/config_site.h by build.sh.
 * cc-tts reads the limits from the build.json that build.sh writes beside the module; it is made from this file. */

/* Calls at once. A conference port for the call and one for our frames each, and the bridge's own. */
#define PJSUA_MAX_CALLS                 2000
#define PJSUA_MAX_CONF_PORTS            (2 * PJSUA_MAX_CALLS + 16)

/* Two sockets a call (RTP, RTCP), as many again for calls whose slots still rest after their end
 * (PJ_IOQUEUE_KEY_FREE_DELAY), and room for SIP over TCP and TLS. Only epoll can do this many. */
#define PJ_IOQUEUE_MAX_HANDLES          10000
#define PJ_IOQUEUE_MAX_EVENTS_IN_SINGLE_POLL 64

/* Each of PJSIP's and PJMEDIA's pollers has one thread, so a socket may stay in its epoll set from one read to the next, and
 * PJMEDIA's lets so many ms pass after a round that was not full (patches/0004). */
#define PJ_IOQUEUE_DEFAULT_EPOLL_FLAGS  0
#define PJ_IOQUEUE_LAZY_READ_CLEAR      1
#define PJMEDIA_ENDPT_GATHER_MSEC       2

/* Sizes of hash tables, 2^n - 1: at 100 calls a second INVITE and BYE transactions stay for 32 s (RFC 3261 timers H, J). */
#define PJSIP_MAX_TSX_COUNT             16383
#define PJSIP_MAX_DIALOG_COUNT          4095
#define PJSIP_MAX_TRANSPORTS            1024

/* Connections that may wait to be accepted: 5 by default, and the kernel lets those beyond try again after a second. One that
 * has sent no SIP message after so many seconds is closed; by default after ten minutes. */
#define PJSIP_TCP_TRANSPORT_BACKLOG     1024
#define PJSIP_TLS_TRANSPORT_BACKLOG     1024
#define PJSIP_TRANSPORT_SERVER_IDLE_TIME_FIRST 10

/* The kernel caps them at net.core.rmem_max and wmem_max, and PJSIP then takes what it gets. */
#define PJSIP_UDP_SO_RCVBUF_SIZE        (8 * 1024 * 1024)
#define PJSIP_UDP_SO_SNDBUF_SIZE        (8 * 1024 * 1024)
#define PJMEDIA_TRANSPORT_SO_RCVBUF_SIZE (64 * 1024)
#define PJMEDIA_TRANSPORT_SO_SNDBUF_SIZE (64 * 1024)

/* Packets from which another source than the SDP's is taken, see patches/0002-rtp-latch.patch. */
#define PJMEDIA_RTP_NAT_PROBATION_CNT   3

/* The longest message: 5,000 Chinese characters in X-TTS-Text, nine bytes each as percent-encoded UTF-8, and other headers.
 * What is sent is shorter, see patches/0009; identity headers (RFC 8224) and long SDP do not fit into PJSIP's 4000. */
#define PJSIP_MAX_PKT_LEN               50000
#define PJSIP_MAX_TX_LEN                16000

#define PJMEDIA_HAS_VIDEO               0
#define PJMEDIA_RESAMPLE_IMP            PJMEDIA_RESAMPLE_LIBSAMPLERATE

/* Nothing here checks its own stack or allocates per log line above what is asked for. */
#define PJ_OS_HAS_CHECK_STACK           0
#define PJSIP_SAFE_MODULE               0
#define PJ_SCANNER_USE_BITWISE          0

/* 1 would change the message as it came, which the user agent reads too: announcement URIs. */
#define PJSIP_UNESCAPE_IN_PLACE         0
